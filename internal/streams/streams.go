// Package streams creates the JetStream streams that notifier needs where they do not exist, with as many
// replicas as the cluster and NATS_REPLICAS allow. A stream that exists is used as it is.
package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// MostReplicas bounds the replicas of a stream; NATS allows no more.
const MostReplicas = 5

// safeReplicas lets a stream survive the loss of any one server.
const safeReplicas = 3

// RequestTimeout bounds one request. The reply of a distant server, or of a busy one, takes more than a
// second.
const RequestTimeout = 5 * time.Second

// lostRequest is the time after which LookUp repeats a request.
const lostRequest = time.Second

// ErrNoReply means that NATS did not reply within the time of a request, so that the result is unknown. It
// wraps context.DeadlineExceeded.
var ErrNoReply error = noReply{}

type noReply struct{}

func (noReply) Error() string { return "NATS did not respond in time" }
func (noReply) Unwrap() error { return context.DeadlineExceeded }

// LookUp makes a request that changes nothing, and bounds it as Request does. If there is no reply after a
// second, LookUp makes the request again: during an election a request is lost, and the reply to a later one
// is not.
func LookUp[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	found, err := within(ctx, lostRequest, request)
	if errors.Is(err, ErrNoReply) {
		found, err = Request(ctx, request)
	}
	return found, err
}

// Request makes one request. It returns ErrNoReply after RequestTimeout, and the request's error if ctx is
// done before.
func Request[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	return within(ctx, RequestTimeout, request)
}

func within[T any](
	ctx context.Context, timeout time.Duration, request func(context.Context) (T, error),
) (T, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := request(limited)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = ErrNoReply
	}
	return found, err
}

// Patience is for Maker.Patience: a cluster that starts refuses three replicas until all of its servers have
// joined, and a stream with one would keep one.
const Patience = time.Minute

// Maker finds or creates streams. It must not be copied after its first use, and is safe for concurrent use.
type Maker struct {
	JetStream jetstream.JetStream
	Replicas  int // of new streams; zero means 3 in a cluster of three or more servers, else 1

	SizeSetting string // names the variable for the size of the stream; may be empty

	// Patience is the time for which a cluster has to refuse three replicas before a stream gets one.
	Patience time.Duration

	// Fewer is called for a stream that was created with one replica because the servers of a cluster have no
	// room for three, with their reason. It may be nil.
	Fewer func(stream string, reason error)

	mu      sync.Mutex
	refused time.Time // when the cluster first refused three replicas; zero after a success
}

// NewMaker makes a Maker for a worker, and logs streams that got too few replicas.
func NewMaker(js jetstream.JetStream, replicas int, sizeSetting string, log *zap.Logger) *Maker {
	maker := &Maker{JetStream: js, Replicas: replicas, SizeSetting: sizeSetting, Patience: Patience}
	maker.Fewer = func(stream string, reason error) {
		log.Warn("the stream has one replica", zap.String("stream", stream), zap.Error(reason),
			zap.String("advice", "give the servers room for three, then: nats stream edit "+stream+
				" --replicas 3; or set NATS_REPLICAS to 1"))
	}
	return maker
}

// Ensure finds a stream, or creates it; Maker.Replicas replaces config.Replicas. Workers may call it at the
// same time: they get the same stream. Errors wrap the errors of package jetstream. While a cluster refuses
// three replicas, Ensure fails for Maker.Patience, and then creates the stream with one.
func (m *Maker) Ensure(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := m.ensure(ctx, config)
	if err == nil {
		m.mu.Lock()
		m.refused = time.Time{}
		m.mu.Unlock()
	}
	return stream, err
}

func (m *Maker) ensure(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	lookUp := func(ctx context.Context) (jetstream.Stream, error) { return m.JetStream.Stream(ctx, config.Name) }
	stream, err := LookUp(ctx, lookUp)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	stream, err = m.create(ctx, config)
	if isAbout(err, subjectsOverlap) {
		return nil, m.nameOther(ctx, config, err)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another worker was faster
		return LookUp(ctx, lookUp)
	}
	return stream, m.explain(err, config)
}

// explain adds to a refusal which setting or limit to change.
func (m *Maker) explain(err error, config jetstream.StreamConfig) error {
	lower := fmt.Sprintf("lower %s, %d, or raise", m.SizeSetting, config.MaxBytes)
	if m.SizeSetting == "" || config.MaxBytes <= 0 {
		lower = "raise"
	}
	advice := ""
	switch {
	case isAbout(err, sizeRequired):
		advice = "set " + m.SizeSetting
	case isAbout(err, sizeExceeded):
		advice = lower + " the account's limit for one stream"
	case isAbout(err, lackOfStorage...):
		advice = lower + " the storage of the account or of the server"
	case isAbout(err, tooManyStreams):
		advice = "raise the account's max_streams: notifier needs three streams"
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// Forecast returns the error with which the server would refuse to create a stream, as far as the limits of
// the account tell, or nil. It counts the stream in account, for the next forecast. clustered reports whether
// the server belongs to a cluster, which may keep three replicas.
func (m *Maker) Forecast(account *jetstream.AccountInfo, config jetstream.StreamConfig, clustered bool) error {
	choices := []int{m.Replicas}
	if m.Replicas == 0 {
		choices = []int{1}
	}
	if m.Replicas == 0 && clustered {
		choices = []int{safeReplicas, 1}
	}
	var refused error
	for _, replicas := range choices {
		tier, tiered := &account.Tier, len(account.Tiers) > 0
		if tiered {
			found, exists := account.Tiers[fmt.Sprintf("R%d", replicas)]
			if !exists {
				refused = refusal(noTier, "no JetStream limits for this number of replicas (NATS_REPLICAS)")
				continue
			}
			tier = &found
		}
		reserved := max(0, config.MaxBytes)
		if !tiered {
			reserved *= int64(replicas)
		}
		if refused = exceeded(*tier, config, reserved); refused != nil {
			continue
		}
		tier.Streams++
		tier.ReservedStore += uint64(reserved)
		if tiered {
			account.Tiers[fmt.Sprintf("R%d", replicas)] = *tier
		}
		return nil
	}
	return m.explain(refused, config)
}

// exceeded returns the refusal of a stream by the limits of one tier, or nil.
func exceeded(tier jetstream.Tier, config jetstream.StreamConfig, reserved int64) error {
	limits := tier.Limits
	switch {
	case limits.MaxStreams > 0 && tier.Streams >= limits.MaxStreams:
		return refusal(tooManyStreams, fmt.Sprintf("maximum number of streams reached: %d", limits.MaxStreams))
	case limits.MaxBytesRequired && config.MaxBytes <= 0:
		return refusal(sizeRequired, "the account requires a stream to have max_bytes")
	case limits.StoreMaxStreamBytes > 0 && config.MaxBytes > limits.StoreMaxStreamBytes:
		return refusal(sizeExceeded,
			fmt.Sprintf("max_bytes exceeds the account's limit of %d for one stream", limits.StoreMaxStreamBytes))
	case limits.MaxStore >= 0 && reserved > limits.MaxStore-int64(tier.ReservedStore):
		return refusal(storageExceeded, fmt.Sprintf("of the account's storage, %d bytes, %d are reserved",
			limits.MaxStore, tier.ReservedStore))
	}
	return nil
}

func refusal(code jetstream.ErrorCode, description string) error {
	return &jetstream.APIError{Code: 400, ErrorCode: code, Description: description}
}

func (m *Maker) create(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if m.Replicas > 0 {
		stream, err := m.createWith(ctx, config, m.Replicas)
		if m.Replicas > 1 && isAbout(err, tooFewServers...) {
			err = fmt.Errorf("NATS_REPLICAS is %d, and the servers cannot keep so many: %w", m.Replicas, err)
		}
		return stream, err
	}
	// Try three on any server: belonging to a cluster is not enough to have room for three.
	stream, refused := m.createWith(ctx, config, safeReplicas)
	switch {
	case !isAbout(refused, tooFewServers...):
		return stream, refused
	case isAbout(refused, noSuitablePeers) && strings.Contains(refused.Error(), "offline"):
		// A server that is being restarted must not cost the stream two of its replicas for ever.
		return nil, fmt.Errorf(
			"a server of the cluster is offline: start it, or set NATS_REPLICAS to 1: %w",
			refused,
		)
	case isAbout(refused, noSuitablePeers, insufficientResources) && m.refusedFor() < m.Patience:
		return nil, fmt.Errorf("the cluster does not keep three replicas yet, after %s one has to do: %w",
			m.Patience, refused)
	}
	stream, err := m.createWith(ctx, config, 1)
	if err == nil && m.Fewer != nil && !isAbout(refused, notClustered) {
		m.Fewer(config.Name, refused)
	}
	return stream, err
}

// refusedFor returns the time since the cluster first refused three replicas.
func (m *Maker) refusedFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused.IsZero() {
		m.refused = time.Now()
	}
	return time.Since(m.refused)
}

// nameOther adds to the server's refusal the stream that has subjects of this one, where the server and the
// user's permissions let it be known.
func (m *Maker) nameOther(ctx context.Context, config jetstream.StreamConfig, refused error) error {
	for _, subject := range config.Subjects {
		if other, err := m.JetStream.StreamNameBySubject(ctx, subject); err == nil {
			return fmt.Errorf("stream %s already has subjects of %s: %w", other, subject, refused)
		}
	}
	return refused
}

func (m *Maker) createWith(
	ctx context.Context,
	config jetstream.StreamConfig,
	replicas int,
) (jetstream.Stream, error) {
	config.Replicas = replicas
	return Request(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return m.JetStream.CreateStream(ctx, config)
	})
}

// Error codes of the server.
const (
	noSuitablePeers       jetstream.ErrorCode = 10005
	insufficientResources jetstream.ErrorCode = 10023
	storageExceeded       jetstream.ErrorCode = 10047
	wrongStream           jetstream.ErrorCode = 10060
	subjectsOverlap       jetstream.ErrorCode = 10065
	notClustered          jetstream.ErrorCode = 10074
	// an account that is given storage for each number of replicas, and none for this one
	noTier          jetstream.ErrorCode = 10120
	accountExceeded jetstream.ErrorCode = 10002
	// limits of an account
	tooManyStreams jetstream.ErrorCode = 10027
	sizeRequired   jetstream.ErrorCode = 10113
	sizeExceeded   jetstream.ErrorCode = 10122
	// of an account, a server, or the stream
	tooManyUnacknowledged jetstream.ErrorCode = 10121
	tooManyConsumers      jetstream.ErrorCode = 10026
	// a second consumer of a work queue, without a filter or with one
	notAlone     jetstream.ErrorCode = 10099
	takesTheSame jetstream.ErrorCode = 10100
)

var (
	lackOfStorage = []jetstream.ErrorCode{insufficientResources, storageExceeded, accountExceeded}
	tooFewServers = []jetstream.ErrorCode{
		noSuitablePeers,
		insufficientResources,
		storageExceeded,
		notClustered,
		noTier,
		accountExceeded,
	}
)

// IsTooLarge reports whether the server refused a stream that a smaller max_bytes might fit.
func IsTooLarge(err error) bool {
	return isAbout(err, lackOfStorage...) || isAbout(err, sizeExceeded)
}

// IsTooManyUnacknowledged reports whether the server refused a consumer for its max_ack_pending.
func IsTooManyUnacknowledged(err error) bool {
	return isAbout(err, tooManyUnacknowledged)
}

// IsTooManyConsumers reports whether the server refused a consumer because the account or the stream has as
// many as it may have.
func IsTooManyConsumers(err error) bool { return isAbout(err, tooManyConsumers) }

// HasOtherConsumer reports whether a work queue refused a consumer because another one takes its subjects.
func HasOtherConsumer(err error) bool { return isAbout(err, notAlone, takesTheSame) }

// IsWrongStream reports whether a message that only one stream may store would have reached another one.
func IsWrongStream(err error) bool { return isAbout(err, wrongStream) }

func isAbout(err error, codes ...jetstream.ErrorCode) bool {
	refused := (*jetstream.APIError)(nil)
	return errors.As(err, &refused) && slices.Contains(codes, refused.ErrorCode)
}
