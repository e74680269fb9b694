package main

import (
	"errors"

	"notifier/internal/devstack"
	"notifier/internal/settings"
)

// devServers are the servers that demo and dev start in this process.
type devServers struct {
	nats  *devstack.NATS
	redis *devstack.Redis
	slack *devstack.Slack
}

// Addresses of dev: those that are the defaults of the settings. demo takes free ones.
const (
	devNATSAddr   = "127.0.0.1:4222"
	devRedisAddr  = "127.0.0.1:6379"
	devSlackAddr  = "127.0.0.1:8090"
	ephemeralAddr = "127.0.0.1:0"
)

// The fake Slack accepts any token of the right form.
const (
	devToken   = "xoxb-fake-token-of-the-fake-slack"
	devChannel = "#notifications"
)

func startServers(natsAddr, redisAddr, slackAddr string) (s devServers, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.nats, err = devstack.StartNATS(natsAddr, ""); err != nil {
		return s, err
	}
	if s.redis, err = devstack.StartRedis(redisAddr); err != nil {
		return s, err
	}
	s.slack, err = devstack.StartSlack(slackAddr)
	return s, err
}

// close stops the started servers in reverse order.
func (s devServers) close() error {
	var errs []error
	if s.slack != nil {
		errs = append(errs, s.slack.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Close())
	}
	return errors.Join(errs...)
}

// configure makes a worker use these servers, which have no TLS and no users.
func (s devServers) configure(env *settings.Environment) {
	env.NATSURL, env.NATSMode = s.nats.URL(), ""
	env.NATSCredsFile, env.NATSNKeyFile = "", ""
	env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey = "", "", ""
	env.RedisURL = s.redis.URL()
	env.RedisTLSCA, env.RedisTLSCert, env.RedisTLSKey = "", "", ""
	env.SlackBotToken, env.SlackWebhookURL = devToken, ""
	env.SlackAPIURL = s.slack.APIURL()
	if env.SlackChannel == "" {
		env.SlackChannel = devChannel
	}
}
