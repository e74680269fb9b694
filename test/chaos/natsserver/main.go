// Command natsserver runs a NATS server until it is killed, for tests that kill servers as processes.
// Its only argument is the path of a configuration file. It is built without the race detector even if
// the tests use it: the detector would slow down elections, and report races in code that is not ours.
package main

import (
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "natsserver:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("%d arguments, expected the path of a configuration file", len(arguments))
	}
	options, err := server.ProcessConfigFile(arguments[0])
	if err != nil {
		return err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
	return nil
}
