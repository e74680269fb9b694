package main

import (
	"errors"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/internal/settings"
)

// devServers are the servers that demo and dev start in this process.
type devServers struct {
	nats     *devstack.NATS
	redis    *devstack.Redis
	slack    *devstack.Slack
	slackTLS *https.Server // nil if Slack speaks plain HTTP
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

func startServers(natsAddr, redisAddr, slackAddr string, secure *https.Server) (s devServers, err error) {
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
	s.slackTLS = secure
	s.slack, err = devstack.StartSlackTLS(slackAddr, secure)
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

// trust lets a worker of this process trust the fake Slack.
func (s devServers) trust(worker *settings.Settings) {
	if s.slackTLS != nil {
		worker.Slack.RootCAs = s.slackTLS.Certificate.Pool()
	}
}

// settings returns a worker's settings for these servers. None has users, and only Slack may have TLS.
func (s devServers) settings() map[string]string {
	return map[string]string{
		"NATS_URL": s.nats.URL(), "NATS_CREDS_FILE": "", "NATS_NKEY_FILE": "",
		"NATS_TLS_CA": "", "NATS_TLS_CERT": "", "NATS_TLS_KEY": "",
		"REDIS_URL": s.redis.URL(), "REDIS_TLS_CA": "", "REDIS_TLS_CERT": "", "REDIS_TLS_KEY": "",
		"SLACK_BOT_TOKEN": devToken, "SLACK_WEBHOOK_URL": "", "SLACK_API_URL": s.slack.APIURL(),
		"SLACK_CHANNEL": devChannel,
	}
}
