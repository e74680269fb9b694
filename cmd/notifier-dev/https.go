package main

import (
	"errors"
	"fmt"
	"io/fs"
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
		&cli.StringFlag{Name: flagHTTPS, Usage: "the fake Slack speaks HTTPS and HTTP/2, as Slack does; `FILE` has its certificate, " +
			"for SSL_CERT_FILE, and is made if absent"},
		&cli.BoolFlag{Name: flagNoHTTP2, Usage: "with -https: no HTTP/2"},
	}
}

// slackTLS returns the HTTPS that the flags ask for. It returns nil if the fake Slack is to speak plain HTTP.
func slackTLS(cmd *cli.Command) (*https.Server, error) {
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
	certificate, err := certificateIn(file)
	if err != nil {
		return nil, fmt.Errorf("-https: %w", err)
	}
	return &https.Server{Certificate: certificate, HTTP1Only: cmd.Bool(flagNoHTTP2)}, nil
}

// certificateIn reads the certificate in a file. If there is no file, it makes one, for this machine by each of
// its names. A container's name is also the one under which others reach it, if the service has a hostname.
func certificateIn(file string) (*https.Certificate, error) {
	certificate, err := https.Load(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return certificate, err
	}
	names := []string{"localhost", "127.0.0.1", "::1"}
	if hostname, err := os.Hostname(); err == nil {
		names = append(names, hostname)
	}
	if certificate, err = https.SelfSigned(names...); err != nil {
		return nil, err
	}
	return certificate, certificate.Save(file)
}
