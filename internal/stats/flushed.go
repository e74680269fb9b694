package stats

import (
	"fmt"
	"strings"
	"time"
)

// Settings are what a replica runs with, as it publishes them.
type Settings struct {
	Fingerprint string // the same for the same document, and without a space; empty: nothing is published
	Document    string // JSON
}

// Flushed is what a flush has brought back.
type Flushed struct {
	Now     time.Time // by the clock of Redis
	Version int64     // of what operators have asked for, see Keys.Steering; 0: nothing
	Peers   []Peer    // the replicas with a heartbeat within the last minute, this one included, in no order

	published bool // the settings of this replica are stored
}

// Peer is a replica as another one sees it.
type Peer struct {
	Replica  string
	Settings string    // fingerprint of what it runs with; empty: it has published nothing
	Seen     time.Time // its last heartbeat, by the clock of Redis
}

// peerFields is how many values the reply has for each replica.
const peerFields = 3

// decodeFlushed checks every field of the reply from flush.lua.
func decodeFlushed(reply []any) (Flushed, error) {
	if len(reply) != 4 {
		return Flushed{}, fmt.Errorf("%d fields, expected 4", len(reply))
	}
	now, isNumber := reply[0].(int64)
	version, isVersion := reply[1].(int64)
	known, isFlag := reply[2].(int64)
	rows, isList := reply[3].([]any)
	if !isNumber || !isVersion || !isFlag || !isList || len(rows)%peerFields != 0 {
		return Flushed{}, fmt.Errorf("%.100q, expected a time, a version, a flag and a list of replicas", fmt.Sprint(reply...))
	}
	flushed := Flushed{Now: time.UnixMicro(now).UTC(), Version: version, published: known == 1}
	for ; len(rows) > 0; rows = rows[peerFields:] {
		name, isName := rows[0].(string)
		settings, isText := rows[1].(string)
		seen, isTime := rows[2].(int64)
		if !isName || !isText || !isTime {
			return Flushed{}, fmt.Errorf("replica %.100q, expected a name, a fingerprint and a time", fmt.Sprint(rows[:peerFields]...))
		}
		flushed.Peers = append(flushed.Peers, Peer{Replica: name, Settings: bounded(settings), Seen: time.UnixMicro(seen).UTC()})
	}
	return flushed, nil
}

// mostFingerprint is far longer than a fingerprint of this version.
const mostFingerprint = 64

// bounded cuts a fingerprint that no replica has written, so that it takes nobody's place in a status. No document has what is left.
func bounded(fingerprint string) string {
	if len(fingerprint) <= mostFingerprint {
		return fingerprint
	}
	return strings.ToValidUTF8(fingerprint[:mostFingerprint], "")
}
