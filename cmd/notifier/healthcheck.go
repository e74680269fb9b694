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

	"notifier/internal/settings"
)

// healthcheckTimeout is shorter than the three seconds that container health checks commonly allow.
const healthcheckTimeout = 2 * time.Second

// longestAnswer bounds what is read of an answer.
const longestAnswer = 16 << 10

func healthcheckCommand() *cli.Command {
	return &cli.Command{
		Name:  "healthcheck",
		Usage: "ask the worker of this container whether it is ready",
		Description: `Asks /readyz of the admin server at ADMIN_ADDR. Exit code 0: ready; 1: not ready, and why.

Example:
   HEALTHCHECK CMD ["/notifier", "healthcheck"]`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			addr, err := settings.LoadAdminAddr()
			if err != nil {
				return err
			}
			return healthcheck(ctx, addr, cmd.Root().Writer)
		},
	}
}

func healthcheck(ctx context.Context, addr string, out io.Writer) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("ADMIN_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1" // it listens on all addresses, including this one
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
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
	_, err = fmt.Fprintln(out, text)
	return err
}
