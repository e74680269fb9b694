package preflight

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"notifier/internal/cause"
	"notifier/internal/slackout"
)

// address names the settings by which a neighbour is reached.
type address struct {
	url   string // the variable of its address
	ca    string // the variable of its authority's file
	plain string // the scheme without TLS
}

var (
	natsAddress  = address{"NATS_URL", "NATS_TLS_CA", "nats://"}
	redisAddress = address{"REDIS_URL", "REDIS_TLS_CA", "redis://"}
)

const moreFiles = "this machine or container has too few open files: raise the limit (ulimit -n)"

// advice returns the remedy for a failed connection, or "".
func (a address) advice(err error) string {
	switch cause.Of(err) {
	case cause.Expired:
		return "renew the server's certificate, or correct this machine's clock"
	case cause.OtherName:
		var wrong x509.HostnameError
		errors.As(err, &wrong)
		return fmt.Sprintf("give the server a certificate for %s, or put a name that it has into %s", wrong.Host, a.url)
	case cause.UnknownAuthority, cause.NoRoots:
		return fmt.Sprintf("set %s to the authority that signed the server's certificate, or add it there", a.ca)
	case cause.BadCertificate:
		return "the server's certificate is not valid: have its issuer make another"
	case cause.NotTLS:
		return fmt.Sprintf("a server without TLS needs %s in %s", a.plain, a.url)
	case cause.Refused:
		return fmt.Sprintf("check %s, and whether the server is running", a.url)
	case cause.NoSocket:
		return fmt.Sprintf("check the path in %s, and whether the server is running", a.url)
	case cause.SocketDenied:
		return fmt.Sprintf("check the permissions of the socket in %s and of its folders", a.url)
	case cause.UnknownHost:
		return fmt.Sprintf("check %s, and the network's DNS", a.url)
	case cause.NoRoute:
		return fmt.Sprintf("check %s, and the network's routes and firewalls", a.url)
	case cause.TooManyFiles:
		return moreFiles
	}
	return ""
}

// slackConnectionAdvice returns the remedy for a failure below HTTP on the way to Slack, or "".
func slackConnectionAdvice(kind cause.Kind) string {
	switch kind {
	case cause.Proxy:
		return "start the proxy, or see its log; or correct HTTPS_PROXY"
	case cause.Expired:
		return "correct this machine's clock, or have the proxy that inspects TLS renew its certificate"
	case cause.OtherName:
		return "another server replies in place of Slack: check SLACK_API_URL, DNS and HTTPS_PROXY"
	case cause.UnknownAuthority:
		return "if a proxy has a certificate of its own, name its authority's file in SSL_CERT_FILE"
	case cause.NoRoots:
		return "correct SSL_CERT_FILE, which has to name a readable file with PEM certificates"
	case cause.NotTLS:
		return "there is no TLS: a proxy without it needs http:// in HTTPS_PROXY"
	case cause.HTTP2:
		return "a proxy answers in HTTP/2 although it was asked for HTTP/1.1: turn HTTP/2 off in it"
	case cause.NoRoute, cause.Refused, cause.UnknownHost:
		return "check the network, and whether it needs HTTPS_PROXY"
	case cause.TooManyFiles:
		return moreFiles
	}
	return ""
}

// slackAdvice returns the remedy for an error, or "".
func slackAdvice(err error) string {
	var refused *slackout.Error
	if !errors.As(err, &refused) {
		return ""
	}
	if advice := slackConnectionAdvice(refused.Cause); advice != "" {
		return advice
	}
	const allow = "check its user and password in HTTPS_PROXY, and whether it allows Slack's host"
	switch code := refused.Code; code {
	case "invalid_auth":
		return "copy SLACK_BOT_TOKEN again from the app's page"
	case "token_revoked", "account_inactive":
		return "install the app again, and set the new SLACK_BOT_TOKEN"
	case "token_expired":
		return "turn token rotation off in the app's settings"
	case "unknown_method", "http_404":
		return "set SLACK_API_URL to the base of Slack's Web API, such as https://slack.com/api/"
	case "invalid_response":
		return "this is not Slack: a proxy's page, or another server"
	case "timeout", "connection_reset", "network_error":
		return "check the network, and HTTPS_PROXY"
	case "tls_error":
		return "check SLACK_API_URL, and the proxy in HTTPS_PROXY"
	case "proxy_401", "proxy_403", "proxy_407":
		return "the proxy refuses: " + allow
	case "http_401", "http_403", "http_407":
		return "a proxy or a firewall refuses, as Slack has other codes for its refusals: " + allow
	case "http_400":
		return "this is not Slack's Web API, or not its port for HTTPS: check SLACK_API_URL"
	default:
		switch {
		case strings.HasPrefix(code, "proxy_5"):
			return "the proxy cannot reach Slack: see its log, and its own way to the Internet"
		case strings.HasPrefix(code, "proxy_"):
			return "the server in HTTPS_PROXY takes no CONNECT: it is no proxy, or not for HTTPS"
		case strings.HasPrefix(code, "http_3"):
			return "a redirect, which is not followed: the login page of a proxy, or SLACK_API_URL is not " +
				"https://slack.com/api/"
		case strings.HasPrefix(code, "http_4"):
			return "a proxy or another server replies in place of Slack: check SLACK_API_URL and HTTPS_PROXY"
		case strings.HasPrefix(code, "http_5"):
			return "Slack fails, or a proxy that cannot reach it: see https://slack-status.com and the proxy's log"
		}
	}
	return ""
}
