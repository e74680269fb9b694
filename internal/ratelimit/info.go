package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"notifier/internal/term"
)

// NoInfo is the error of a server that has no INFO, or none for this user.
type NoInfo struct{ reply error }

func (n NoInfo) Error() string {
	if redis.IsPermissionError(n.reply) {
		return "the user may not run INFO"
	}
	return fmt.Sprintf("the server refuses INFO (%v)", n.reply)
}

func (n NoInfo) Unwrap() error { return n.reply }

func isNoInfo(err error) bool { return errors.As(err, new(NoInfo)) }

// Info reads sections of INFO. It returns nil for the embedded store, which lacks most, and NoInfo if the
// server refuses the command: some proxies do, and some providers rename it.
func Info(ctx context.Context, client redis.Cmdable, sections ...string) (map[string]string, error) {
	text, err := client.Info(ctx, sections...).Result()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "not supported"):
		return nil, nil
	case errors.As(err, new(redis.Error)) && !passes(err):
		return nil, NoInfo{err}
	default:
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	return info, nil
}

// passes reports whether an error is temporary, or does not concern INFO alone.
func passes(err error) bool {
	return redis.IsLoadingError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || redis.IsAuthError(err) ||
		strings.HasPrefix(err.Error(), "BUSY ")
}

// Eviction returns an error if a full server evicts admissions. The volatile policies do, because all keys
// expire.
func Eviction(info map[string]string) error {
	policy := info["maxmemory_policy"]
	bound, err := strconv.ParseUint(info["maxmemory"], 10, 64)
	if err != nil || bound == 0 || policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("maxmemory-policy %s: at %s Redis forgets admissions, and more events are sent than the "+
		"limits allow; set it to noeviction", policy, term.Size(bound))
}

// IsClusterNode reports whether a server is a node of a Cluster.
func IsClusterNode(info map[string]string) bool { return info["redis_mode"] == "cluster" }

// OneNode is the remedy if the URL names one node of a Cluster like a single server.
const OneNode = "this is one node of a Cluster: name another one with addr= in REDIS_URL"

// OneNodeWarning is OneNode while the node still takes commands.
const OneNodeWarning = OneNode + ", or it refuses commands once the keys move to another node"

const noHashTags = "this server does not keep the keys of a {namespace} together: use one without shards"

// adviser adds the remedy to errors of the server that do not tell it.
type adviser struct{ single bool } // the URL names one server

func (a adviser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a adviser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if advice := a.advice(err); advice != "" {
			err = fmt.Errorf("%w; %s", err, advice)
			command.SetErr(err)
		}
		return err
	}
}

func (a adviser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, command := range commands {
			if advice := a.advice(command.Err()); advice != "" {
				command.SetErr(fmt.Errorf("%w; %s", command.Err(), advice))
			}
		}
		if advice := a.advice(err); advice != "" {
			err = fmt.Errorf("%w; %s", err, advice)
		}
		return err
	}
}

func (a adviser) advice(err error) string {
	_, moved := redis.IsMovedError(err)
	_, asked := redis.IsAskError(err)
	switch {
	case err == nil:
	case a.single && (moved || asked):
		return OneNode
	case strings.HasPrefix(err.Error(), "CROSSSLOT "):
		return noHashTags
	}
	return ""
}
