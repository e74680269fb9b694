// Package streams creates the JetStream streams that notifier needs where they do not exist, with as many
// replicas as the cluster and NATS_REPLICAS allow. A stream that exists is used as it is.
package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// MostReplicas is how many replicas NATS allows for a stream.
const MostReplicas = 5

// safeReplicas is what a stream gets where a cluster has room for it: with three it survives the loss of any
// one server.
const safeReplicas = 3

// creationTimeout is for a request that changes something, which takes longer than a question.
const creationTimeout = 5 * time.Second

// Maker finds or creates streams.
type Maker struct {
	JetStream jetstream.JetStream
	Replicas  int // of what is created; 0: three in a cluster of three servers or more, else one

	// Fewer is called for a stream that was created with one replica because the servers of a cluster have no
	// room for three, with their reason. It may be nil.
	Fewer func(stream string, reason error)
}

// NewMaker makes a Maker for a worker, whose log names streams that got fewer replicas than they should have.
func NewMaker(js jetstream.JetStream, replicas int, log *zap.Logger) Maker {
	return Maker{JetStream: js, Replicas: replicas, Fewer: func(stream string, reason error) {
		log.Warn("the stream has one replica", zap.String("stream", stream), zap.Error(reason),
			zap.String("advice", "give the servers room for three, then: nats stream edit "+stream+
				" --replicas 3; or set NATS_REPLICAS to 1"))
	}}
}

// Ensure finds a stream, or creates it with the replicas that are wanted; those of config are ignored. It may
// be called by several workers at the same time: they get the same stream. Errors wrap those of package
// jetstream.
func (m Maker) Ensure(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := m.JetStream.Stream(ctx, config.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	stream, err = m.create(ctx, config)
	if isAbout(err, overlap) {
		return nil, m.nameOther(ctx, config, err)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster
		return m.JetStream.Stream(ctx, config.Name)
	}
	return stream, err
}

func (m Maker) create(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if m.Replicas > 0 {
		stream, err := m.createWith(ctx, config, m.Replicas)
		if m.Replicas > 1 && isAbout(err, tooFewServers) {
			err = fmt.Errorf("NATS_REPLICAS is %d, and the servers cannot keep so many: %w", m.Replicas, err)
		}
		return stream, err
	}
	// The server is asked for three whatever it is: whether it belongs to a cluster is not all that decides.
	stream, refused := m.createWith(ctx, config, safeReplicas)
	switch {
	case !isAbout(refused, tooFewServers):
		return stream, refused
	case isAbout(refused, noPeers) && strings.Contains(refused.Error(), "offline"):
		// A server that is being restarted must not cost the stream two of its replicas for ever.
		return nil, fmt.Errorf(
			"a server of the cluster is offline: start it, or set NATS_REPLICAS to 1: %w",
			refused,
		)
	}
	stream, err := m.createWith(ctx, config, 1)
	if err == nil && m.Fewer != nil && !isAbout(refused, alone) {
		m.Fewer(config.Name, refused)
	}
	return stream, err
}

// nameOther adds to the server's refusal the stream that has subjects of this one, where the server and the
// user's permissions let it be known.
func (m Maker) nameOther(ctx context.Context, config jetstream.StreamConfig, refused error) error {
	for _, subject := range config.Subjects {
		if other, err := m.JetStream.StreamNameBySubject(ctx, subject); err == nil {
			return fmt.Errorf("stream %s already has subjects of %s: %w", other, subject, refused)
		}
	}
	return refused
}

func (m Maker) createWith(
	ctx context.Context,
	config jetstream.StreamConfig,
	replicas int,
) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, creationTimeout)
	defer cancel()
	config.Replicas = replicas
	return m.JetStream.CreateStream(ctx, config)
}

// Codes of the server's answers.
const (
	noSuitablePeers       jetstream.ErrorCode = 10005
	insufficientResources jetstream.ErrorCode = 10023
	storageExceeded       jetstream.ErrorCode = 10047
	subjectsOverlap       jetstream.ErrorCode = 10065
	notClustered          jetstream.ErrorCode = 10074
	// an account that is given storage for each number of replicas, and none for this one
	noTier          jetstream.ErrorCode = 10120
	accountExceeded jetstream.ErrorCode = 10002
)

var (
	overlap       = []jetstream.ErrorCode{subjectsOverlap}
	alone         = []jetstream.ErrorCode{notClustered}
	noPeers       = []jetstream.ErrorCode{noSuitablePeers}
	lackOfStorage = []jetstream.ErrorCode{insufficientResources, storageExceeded}
	tooFewServers = []jetstream.ErrorCode{
		noSuitablePeers,
		insufficientResources,
		storageExceeded,
		notClustered,
		noTier,
		accountExceeded,
	}
)

// IsLackOfStorage reports whether the server refused a stream because it may grow larger than there is room
// for.
func IsLackOfStorage(err error) bool { return isAbout(err, lackOfStorage) }

func isAbout(err error, codes []jetstream.ErrorCode) bool {
	refused := (*jetstream.APIError)(nil)
	return errors.As(err, &refused) && slices.Contains(codes, refused.ErrorCode)
}
