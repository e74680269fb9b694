//go:build !production

package main

import (
	"errors"
	"os"

	"notifier/internal/devstack"
)

// devNeighbours are the servers that demo and dev start in this process.
type devNeighbours struct {
	nats  *devstack.NATS
	redis *devstack.Redis
	slack *devstack.Slack
}

// Addresses of dev: the ones that the settings' defaults name. demo takes free ones.
const (
	devNATSAddr  = "127.0.0.1:4222"
	devRedisAddr = "127.0.0.1:6379"
	devSlackAddr = "127.0.0.1:8090"
	anyAddr      = "127.0.0.1:0"
)

// The fake Slack takes any token of the right form.
const (
	devToken   = "xoxb-fake-token-of-the-fake-slack"
	devChannel = "#notifications"
)

func startNeighbours(natsAddr, redisAddr, slackAddr string) (n devNeighbours, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.nats, err = devstack.StartNATS(natsAddr, ""); err != nil {
		return n, err
	}
	if n.redis, err = devstack.StartRedis(redisAddr); err != nil {
		return n, err
	}
	n.slack, err = devstack.StartSlack(slackAddr)
	return n, err
}

// close ends what was started, in reverse.
func (n devNeighbours) close() error {
	var errs []error
	if n.slack != nil {
		errs = append(errs, n.slack.Close())
	}
	if n.redis != nil {
		errs = append(errs, n.redis.Close())
	}
	if n.nats != nil {
		errs = append(errs, n.nats.Close())
	}
	return errors.Join(errs...)
}

// isSet reports whether a variable is set, itself or through a file: dev has a default of its own for one.
func isSet(name string) bool { return os.Getenv(name) != "" || os.Getenv(name+"_FILE") != "" }

// pointAt makes settings use these neighbours, which know no TLS and no users.
func (n devNeighbours) pointAt(env *environment) {
	env.NATSURL, env.NATSMode = n.nats.URL(), modeJetStream
	env.NATSCredsFile, env.NATSNKeyFile = "", ""
	env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey = "", "", ""
	env.RedisURL = n.redis.URL()
	env.RedisTLSCA, env.RedisTLSCert, env.RedisTLSKey = "", "", ""
	env.SlackBotToken, env.SlackWebhookURL = devToken, ""
	env.SlackAPIURL = n.slack.APIURL()
	if env.SlackChannel == "" {
		env.SlackChannel = devChannel
	}
}
