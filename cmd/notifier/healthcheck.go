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

// longestAnswer limits the size of a response body.
const longestAnswer = 16 << 10

func healthcheckCommand() *cli.Command {
	return &cli.Command{
		Name:   "healthcheck",
		Hidden: true, // it is for containers
		Usage:  "ask the worker of this container whether it is ready",
		Description: `Asks /readyz of the admin server at ADMIN_ADDR. Exit code 0: ready; 1: not ready, and why.
If the worker has a token, the reasons need it: ADMIN_TOKEN or ADMIN_TOKEN_FILE.

Example:
   HEALTHCHECK CMD ["/notifier", "healthcheck"]`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.NoArguments(cmd); err != nil {
				return err
			}
			s, err := settings.Load("ADMIN_ADDR")
			if err != nil {
				return err
			}
			if s.AdminAddr == "" {
				problems := &settings.Problems{}
				problems.Add("ADMIN_ADDR", "is empty, so there is no admin server to ask; expected host:port")
				return problems
			}
			// Without a valid token the worker still reports whether it is ready, but not why.
			with, _ := settings.Load("ADMIN_TOKEN")
			return healthcheck(ctx, s.AdminAddr, with.AdminToken, cmd.Root().Writer)
		},
	}
}

// healthcheck prints the worker's readiness. If the worker has a token, it returns the reasons only to
// requests with that token.
func healthcheck(ctx context.Context, addr, token string, out io.Writer) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("ADMIN_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1" // it listens on all addresses, including this one
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		"http://"+net.JoinHostPort(host, port)+"/readyz",
		nil,
	)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// Directly to the worker, whatever HTTP_PROXY says, and without following it to another server.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	text := strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK {
		if response.StatusCode != http.StatusServiceUnavailable {
			return fmt.Errorf("%s is not an admin server of notifier: it answers %s", addr, response.Status)
		}
		return errors.New("not ready: " + strings.ReplaceAll(text, "\n", "; "))
	}
	_, err = fmt.Fprintln(out, term.Lines(text))
	return err
}
