// Package rig has what the measurements in bench share: a NATS server and a Redis server in processes of
// their own, a fake Slack, what processes have used, and the places in documents that are generated. It knows
// nothing of what is measured.
package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
)

// RoleNATS is the role in which a program that uses this package must call ServeNATS: started with -role
// RoleNATS.
const RoleNATS = "nats"

// Servers is what a measurement runs against. All of it listens on 127.0.0.1 alone.
type Servers struct {
	Folder   string // scratch, removed by Close
	NATSURL  string
	RedisURL string
	Slack    *devstack.Slack
	JS       jetstream.JetStream

	nats, redis *exec.Cmd
}

// Start starts the servers. Close ends what has been started, on an error too.
func (s *Servers) Start(name string) error {
	var err error
	if s.Folder, err = os.MkdirTemp("", "notifier-"+name+"-"); err != nil {
		return err
	}
	if err := s.startNATS(); err != nil {
		return err
	}
	port := devstack.FreeAddr("127.0.0.1:0")
	s.RedisURL = "redis://" + port + "/0"
	s.redis = exec.Command(
		"redis-server",
		"--port",
		port[strings.LastIndex(port, ":")+1:],
		"--bind",
		"127.0.0.1",
		"--save",
		"",
		"--dir",
		s.Folder,
	)
	if err := s.redis.Start(); err != nil {
		return fmt.Errorf("redis-server (Debian: apt-get install redis-server): %w", err)
	}
	if s.Slack, err = devstack.StartSlack("127.0.0.1:0"); err != nil {
		return err
	}
	connection, err := nats.Connect(s.NATSURL)
	if err != nil {
		return err
	}
	s.JS, err = jetstream.New(connection)
	return err
}

// Published waits until JetStream has taken all that was published asynchronously.
func (s *Servers) Published(ctx context.Context, within time.Duration) error {
	select {
	case <-s.JS.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(within):
		return fmt.Errorf("the events could not be published in %s", within)
	}
}

// Role is this program in one of its roles, with more in its environment.
func Role(role string, environment ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, "-role", role)
	command.Env = append(os.Environ(), environment...)
	command.Stderr = os.Stderr
	return command, nil
}

func (s *Servers) startNATS() error {
	command, err := Role(RoleNATS)
	if err != nil {
		return err
	}
	s.nats = command
	out, err := s.nats.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.nats.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	s.NATSURL = strings.TrimSpace(line)
	return nil
}

// ServeNATS runs a NATS server until the context ends, and prints its URL.
func ServeNATS(ctx context.Context) error {
	server, err := devstack.StartNATS("127.0.0.1:0", "")
	if err != nil {
		return err
	}
	fmt.Println(server.URL())
	<-ctx.Done()
	return server.Close()
}

// Close ends what was started. The servers hold nothing that is worth a graceful end.
func (s *Servers) Close() error {
	if s.JS != nil {
		s.JS.Conn().Close()
	}
	var errs []error
	if s.Slack != nil {
		errs = append(errs, s.Slack.Close())
	}
	for _, server := range []*exec.Cmd{s.redis, s.nats} {
		if server != nil && server.Process != nil {
			_ = server.Process.Signal(syscall.SIGTERM) // it may have ended by itself
			_ = server.Wait()
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.Folder))...)
}

// Used is the processor time that NATS and Redis have used so far.
func (s *Servers) Used() (nats, redis time.Duration) {
	return CPU(s.nats.Process.Pid), CPU(s.redis.Process.Pid)
}

// BuildWorker builds the worker as it is released, from the top of the repository, and returns the path of
// the program.
func (s *Servers) BuildWorker(ctx context.Context, top string) (string, error) {
	program := filepath.Join(s.Folder, "notifier")
	return program, Build(ctx, top, program, "./cmd/notifier")
}

// Build builds a program in a folder, with the arguments of go build.
func Build(ctx context.Context, folder, program string, arguments ...string) error {
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-o", program}, arguments...)...)
	build.Dir, build.Stderr = folder, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s (from the top of the repository): %w", filepath.Base(program), err)
	}
	return nil
}

// Create makes an empty stream as the worker would, and the consumer that is given for all of its subjects.
func (s *Servers) Create(
	ctx context.Context,
	stream, subject string,
	consumer jetstream.ConsumerConfig,
) error {
	if err := s.JS.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err := s.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name:      stream,
		Subjects:  []string{subject + ".>"},
		Retention: jetstream.WorkQueuePolicy,
		Storage:   jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	consumer.FilterSubject = subject + ".>"
	if consumer.DeliverSubject != "" {
		_, err = s.JS.CreatePushConsumer(ctx, stream, consumer)
		return err
	}
	_, err = s.JS.CreateConsumer(ctx, stream, consumer)
	return err
}

// Consumer is the configuration of a consumer as the worker creates it.
func Consumer(name string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       name,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       20 * time.Second,
		MaxDeliver:    -1,
		MaxAckPending: 32_768,
	}
}
