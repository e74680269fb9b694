package main

import (
	"context"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// drainBare only acknowledges each event.
func drainBare(ctx context.Context) error {
	return consume(
		ctx,
		"BARE",
		"bare",
		func(message jetstream.Msg) { _ = message.Ack() },
		jetstream.PullMaxMessages(bareInFlight),
	)
}

// consume passes the consumer's messages to handle until ctx is done.
func consume(
	ctx context.Context,
	stream, name string,
	handle jetstream.MessageHandler,
	options ...jetstream.PullConsumeOpt,
) error {
	connection, err := nats.Connect(os.Getenv(natsURL))
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, stream, name)
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(handle, options...)
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return connection.Flush()
}
