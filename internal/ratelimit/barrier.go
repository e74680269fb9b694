package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

var healedScript = redis.NewScript(lua.Healed)

// await waits until all replicas have put back what they remember, or until it has waited for long enough. It returns which have not.
func (h *Healer) await(ctx context.Context, connection *redis.Conn, found server, round string) (missing []string, err error) {
	for {
		agreed, err := h.agree(ctx, connection, "done", found, round)
		switch {
		case err != nil:
			return nil, err
		case agreed.state == emptied:
			return nil, errAnother
		case agreed.state == healed:
			return agreed.missing, nil
		}
		select {
		case <-time.After(min(agreed.left, healPoll)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// agreement is the answer of healed.lua.
type agreement struct {
	state   int64
	left    time.Duration
	missing []string // replicas
	round   string
}

// What an agreement's state can be.
const (
	unhealed int64 = iota
	healed
	emptied
)

// agree runs healed.lua.
func (h *Healer) agree(ctx context.Context, connection *redis.Conn, step string, found server, round string) (agreement, error) {
	strangers := strangerWait
	if found.generation == "" { // an embedded store: nobody else can have known it
		strangers = 0
	}
	arguments := []any{step, found.generation, found.number(), h.config.Replica, micros(healWait), micros(strangers), round}
	if h.config.Peers != nil && step != "look" {
		for _, peer := range h.config.Peers() {
			arguments = append(arguments, peer)
		}
	}
	keyNames := []string{h.limiter.keys.register(), h.limiter.keys.healing()}
	reply, err := healedScript.Run(ctx, connection, keyNames, arguments...).Result()
	if err != nil {
		return agreement{}, fmt.Errorf("redis: cannot agree with other replicas: %w", h.limiter.explain(ctx, err, keyNames))
	}
	agreed, err := decodeAgreement(reply)
	if err != nil {
		return agreement{}, fmt.Errorf("redis: unexpected reply from healed.lua: %w", err)
	}
	return agreed, nil
}

func decodeAgreement(reply any) (agreement, error) {
	fields, err := list(reply, "reply", 4)
	if err != nil {
		return agreement{}, err
	}
	var agreed agreement
	if agreed.state, err = number(fields[0], "healed"); err != nil {
		return agreement{}, err
	}
	left, err := number(fields[1], "number")
	if err != nil || left < 0 || agreed.state < unhealed || agreed.state > emptied {
		return agreement{}, fmt.Errorf("state %d with %v, expected 0 to 2 and a time", agreed.state, fields[1])
	}
	agreed.left = span(left)
	names, err := list(fields[2], "names", -1)
	if err != nil {
		return agreement{}, err
	}
	for _, field := range names {
		name, isText := field.(string)
		if !isText {
			return agreement{}, fmt.Errorf("name is a %T, expected a text", field)
		}
		agreed.missing = append(agreed.missing, name)
	}
	round, isText := fields[3].(string)
	if !isText {
		return agreement{}, fmt.Errorf("round is a %T, expected a text", fields[3])
	}
	agreed.round = round
	return agreed, nil
}
