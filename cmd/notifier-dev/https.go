package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/devstack/https"
)

const (
	flagHTTPS   = "https"
	flagNoHTTP2 = "no-http2"
)

// httpsFlags are the flags of the commands that start a fake Slack.
func httpsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: flagHTTPS, Usage: "the fake Slack speaks HTTPS with HTTP/2, as Slack does; " +
			"`FILE` holds its certificate, for workers with SSL_CERT_FILE=FILE, and is made if missing"},
		&cli.BoolFlag{Name: flagNoHTTP2, Usage: "with -https: no HTTP/2"},
	}
}

// slackTLS reads the flags for a fake Slack on addr. It returns nil if that speaks plain HTTP.
func slackTLS(cmd *cli.Command, addr string) (*https.Server, error) {
	if !cmd.IsSet(flagHTTPS) {
		if cmd.Bool(flagNoHTTP2) {
			return nil, &cmdline.UsageError{Text: "-no-http2 without -https, expected both"}
		}
		return nil, nil
	}
	file := cmd.String(flagHTTPS)
	if file == "" {
		return nil, &cmdline.UsageError{Text: "-https is empty, expected a file for the certificate"}
	}
	certificate, err := certificateIn(file, addr)
	if err != nil {
		return nil, fmt.Errorf("-https: %w", err)
	}
	return &https.Server{Certificate: certificate, HTTP1Only: cmd.Bool(flagNoHTTP2)}, nil
}

// certificateIn loads the certificate in a file. If the file does not exist, it makes one for the host of
// addr, localhost and this machine's name. In compose, that is the service's hostname.
func certificateIn(file, addr string) (*https.Certificate, error) {
	host, _, _ := net.SplitHostPort(addr)
	if net.ParseIP(host).IsUnspecified() { // clients use any of the machine's names
		host = ""
	}
	certificate, err := https.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		certificate, err = newCertificate(file, host)
	}
	if err == nil && host != "" && !certificate.IsFor(host) {
		err = fmt.Errorf("%s: the certificate is not valid for %s; remove the file to have one made", file, host)
	}
	return certificate, err
}

func newCertificate(file, host string) (*https.Certificate, error) {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if host != "" {
		names = append(names, host)
	}
	if hostname, err := os.Hostname(); err == nil {
		names = append(names, hostname)
	}
	certificate, err := https.SelfSigned(names...)
	if err != nil {
		return nil, err
	}
	if err = certificate.Save(file); errors.Is(err, fs.ErrExist) { // by another process, a moment ago
		return https.Load(file)
	}
	return certificate, err
}
