package stats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gone is the age at which a heartbeat no longer counts: its replica has ended.
const gone = time.Minute

// Heartbeat is what a replica reports about itself at each flush.
type Heartbeat struct {
	Started time.Time `json:"started"`
	Version string    `json:"version"`
	Ready   bool      `json:"ready"`
	Held    int       `json:"held"` // events held
	Waits   []Wait    `json:"waits,omitempty"`
	// Refused are the channels that refuse every message of this replica, each with Slack's code.
	Refused map[string]string `json:"refused_channels,omitempty"`
}

// Wait is something that a replica waits for, in the same words as in its log.
type Wait struct {
	For    string    `json:"for"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Replica is a running replica.
type Replica struct {
	ID   string    `json:"id"`
	Seen time.Time `json:"seen"` // its last heartbeat, by the clock of Redis
	Heartbeat
}

// decodeReplicas decodes the hash of heartbeats as it was at the time now, without those older than a minute, sorted by
// id.
func decodeReplicas(key string, fields map[string]string, now time.Time) ([]Replica, error) {
	replicas := make([]Replica, 0, len(fields))
	for id, value := range fields {
		seen, content, found := strings.Cut(value, " ")
		micros, err := strconv.ParseInt(seen, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("redis: %s: replica %q has %.60q, expected a time in microseconds and a heartbeat", key, id, value)
		}
		replica := Replica{ID: id, Seen: time.UnixMicro(micros).UTC()}
		if now.Sub(replica.Seen) >= gone {
			continue
		}
		if err := json.Unmarshal([]byte(content), &replica.Heartbeat); err != nil {
			return nil, fmt.Errorf("redis: %s: heartbeat of replica %q: %w", key, id, err)
		}
		replicas = append(replicas, replica)
	}
	slices.SortFunc(replicas, func(a, b Replica) int { return cmp.Compare(a.ID, b.ID) })
	return replicas, nil
}
