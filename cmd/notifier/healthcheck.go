package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// healthcheckTimeout is shorter than the three seconds that container health checks commonly allow.
const healthcheckTimeout = 2 * time.Second

// maxReasons bounds the bytes read of a response.
const maxReasons = 16 << 10

func healthcheckCommand() *cli.Command {
	return &cli.Command{
		Name:   "healthcheck",
		Hidden: true, // it is for containers
		Usage:  "ask the worker of this container whether it is ready",
		Description: `Requests /readyz of the admin server at ADMIN_ADDR. Exit code 0: ready; 1: not
ready, and why. If the worker has a token, the reasons need it: ADMIN_TOKEN or ADMIN_TOKEN_FILE.

Example:
   HEALTHCHECK CMD ["/notifier", "healthcheck"]`,
		Action: runHealthcheck,
	}
}

func runHealthcheck(ctx context.Context, cmd *cli.Command) error {
	s, err := settings.Load("ADMIN_ADDR")
	if err != nil {
		return err
	}
	if s.AdminAddr == "" {
		return &cmdline.UsageError{Text: "ADMIN_ADDR: is empty, so there is no admin server; expected host:port"}
	}
	// Without a valid token the worker still reports whether it is ready, but not why.
	with, _ := settings.Load("ADMIN_TOKEN")
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	code, text, err := readiness(ctx, s.AdminAddr, with.AdminToken)
	switch {
	case err != nil:
		return fmt.Errorf("no reply from %s: %w", s.AdminAddr, err)
	case code == http.StatusServiceUnavailable:
		return errors.New("not ready: " + strings.ReplaceAll(text, "\n", "; "))
	case code != http.StatusOK:
		return fmt.Errorf("%s is not an admin server of notifier: HTTP status %d", s.AdminAddr, code)
	}
	_, err = fmt.Fprintln(cmd.Root().Writer, term.Lines(text))
	return err
}

// readiness returns the status code and the text of /readyz.
func readiness(ctx context.Context, addr, token string) (code int, text string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, "", err
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1" // the server listens on all addresses
	}
	url := "http://" + net.JoinHostPort(host, port) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The token goes neither to the proxy of HTTP_PROXY nor along a redirect.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReasons))
	return response.StatusCode, strings.TrimSpace(string(body)), err
}
