package streams

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/test/kit"
	"notifier/test/natstest"
)

// config has two replicas, to show that Ensure ignores the field.
var config = jetstream.StreamConfig{
	Name: "NOTIFY", Subjects: []string{"notify.>"}, MaxBytes: 1 << 20, Replicas: 2,
}

// made numbers the streams. Names are never reused, because the server may still be deleting the old
// directory.
var made atomic.Int64

// makes calls Ensure and returns the replicas of the stream and the number of calls of Fewer.
func makes(t *testing.T, url string, replicas int) (got, fewer int, err error) {
	t.Helper()
	js := kit.JetStream(t, url)
	config := config
	config.Name = fmt.Sprintf("NOTIFY_%d", made.Add(1))
	maker := Maker{JetStream: js, Replicas: replicas, Fewer: func(stream string, reason error) {
		if fewer++; stream != config.Name || reason == nil {
			t.Errorf("Fewer(%q, %v)", stream, reason)
		}
	}}
	var stream jetstream.Stream
	kit.Eventually(t, "the servers answer", func() bool { // a busy machine may need longer than one request
		fewer = 0
		stream, err = maker.Ensure(t.Context(), config)
		return !errors.Is(err, context.DeadlineExceeded)
	})
	if err != nil {
		return 0, fewer, err
	}
	got = stream.CachedInfo().Config.Replicas
	kit.EventuallyNil(t, func() error {
		if err := js.DeleteStream(t.Context(), config.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil
	})
	return got, fewer, nil
}

// makesOnline calls makes on a running cluster. It retries, because a busy server may briefly count as
// offline.
func makesOnline(t *testing.T, url string, replicas int) (got, fewer int, err error) {
	t.Helper()
	kit.Eventually(t, "no server counts as offline", func() bool {
		got, fewer, err = makes(t, url, replicas)
		return err == nil || !strings.Contains(err.Error(), "offline")
	})
	return got, fewer, err
}

func TestMain(m *testing.M) {
	kit.Overlap(8) // tests mostly wait
	os.Exit(m.Run())
}

func TestReplicasOnOneServer(t *testing.T) {
	t.Parallel()
	s := single(t)
	if got, fewer, err := makes(t, s.ClientURL(), 0); got != 1 || fewer != 0 || err != nil {
		t.Errorf("%d, %d, %v; expected one replica and no reason", got, fewer, err)
	}
	tooMany := "NATS_REPLICAS is 3, and the servers cannot keep so many"
	if got, _, err := makes(t, s.ClientURL(), 3); err == nil || !strings.Contains(err.Error(), tooMany) {
		t.Errorf("three replicas of a server that is alone: %d, %v; expected an error that names NATS_REPLICAS",
			got, err)
	}
}

func single(t *testing.T) *server.Server {
	t.Helper()
	return natstest.Server(t, &server.Options{JetStream: true, JetStreamMaxStore: 2 << 20})
}

// TestLackOfStorage checks that the caller gets the reason of the server, and no stream.
func TestLackOfStorage(t *testing.T) {
	t.Parallel()
	js := kit.JetStream(t, single(t).ClientURL())
	large := config
	large.MaxBytes = 1 << 30
	maker := Maker{JetStream: js, Fewer: func(string, error) {
		t.Error("Fewer is called for a stream that was not created")
	}}
	if _, err := maker.Ensure(t.Context(), large); !IsTooLarge(err) {
		t.Errorf("a stream that is larger than the server: %v, expected a lack of storage", err)
	}
	if IsTooLarge(nil) || IsTooLarge(errors.New("other")) {
		t.Error("other errors are taken for a lack of storage")
	}
}

func TestReplicasOnThreeServers(t *testing.T) {
	t.Parallel()
	url := natstest.Cluster(t, 3, nil)[0].ClientURL()
	for replicas, want := range map[int]int{0: 3, 1: 1, 3: 3} {
		if got, fewer, err := makesOnline(t, url, replicas); got != want || fewer != 0 || err != nil {
			t.Errorf("NATS_REPLICAS %d: %d, %d, %v; expected %d replicas and no reason",
				replicas, got, fewer, err, want)
		}
	}
	// Workers that start together get one stream. An existing stream is never altered.
	js := kit.JetStream(t, url)
	var together sync.WaitGroup
	for range 4 {
		together.Go(func() {
			var err error
			answered := kit.Within(kit.Patience, func() bool { // as in makes
				_, err = (&Maker{JetStream: js, Replicas: 1}).Ensure(t.Context(), config)
				return !errors.Is(err, context.DeadlineExceeded)
			})
			if err != nil || !answered {
				t.Error(err)
			}
		})
	}
	together.Wait()
	other := config
	other.Subjects = []string{"other.>"}
	var stream jetstream.Stream
	kit.EventuallyNil(t, func() (err error) {
		stream, err = (&Maker{JetStream: js}).Ensure(t.Context(), other)
		return err
	})
	if got := stream.CachedInfo().Config; got.Replicas != 1 || got.Subjects[0] != "notify.>" {
		t.Errorf("a stream that existed has %d replicas and %v, expected it as it was", got.Replicas, got.Subjects)
	}
}

func TestReplicasOnTwoServers(t *testing.T) {
	t.Parallel()
	servers := natstest.Cluster(t, 2, nil)
	if got, fewer, err := makesOnline(t, servers[0].ClientURL(), 0); got != 1 || fewer != 1 || err != nil {
		t.Errorf("%d, %d, %v; expected one replica with a reason", got, fewer, err)
	}
}

// TestOfflineServerKeepsThreeReplicas stops one of three servers. A server restart must not leave the
// stream with one replica for ever.
func TestOfflineServerKeepsThreeReplicas(t *testing.T) {
	t.Parallel()
	servers := natstest.Cluster(t, 3, nil)
	servers[2].Shutdown()
	servers[2].WaitForShutdown()
	kit.Eventually(t, "the stream has three replicas", func() bool {
		got, _, err := makes(t, servers[0].ClientURL(), 0)
		if got == 1 {
			t.Fatal("the stream has one replica, because one of three servers was offline")
		}
		return err == nil && got == 3
	})
}

// fakeServer is a server that refuses some replica counts, and records the requested counts.
type fakeServer struct {
	jetstream.JetStream
	refuse    map[int]error
	requested []int
}

func (f *fakeServer) Stream(context.Context, string) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNotFound
}

func (f *fakeServer) StreamNameBySubject(context.Context, string) (string, error) {
	return "", jetstream.ErrStreamNotFound
}

func (f *fakeServer) CreateStream(_ context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	f.requested = append(f.requested, config.Replicas)
	return nil, f.refuse[config.Replicas]
}

// TestRepliesOfOtherServers covers older servers, which do not count offline peers, and accounts with
// storage for one replica only.
func TestRepliesOfOtherServers(t *testing.T) {
	t.Parallel()
	refusal := func(code jetstream.ErrorCode, description string) error {
		return &jetstream.APIError{ErrorCode: code, Description: description}
	}
	for _, test := range []struct {
		name      string
		wanted    int
		err       error
		requested []int
		fewer     int
		want      string // part of the error; if empty, no error
	}{
		{"offline", 0, refusal(10005, "no suitable peers for placement, peer offline"), []int{3}, 0, "a server of the cluster is offline: start it, or set NATS_REPLICAS to 1"},
		{"too few", 0, refusal(10005, "no suitable peers for placement"), []int{3, 1}, 1, ""},
		{"no tier", 0, refusal(10120, "no JetStream default or applicable tiered limit present"), []int{3, 1}, 1, ""},
		{"not clustered", 0, refusal(10074, "replicas > 1 not supported in non-clustered mode"), []int{3, 1}, 0, ""},
		{"overlap", 0, refusal(10065, "subjects overlap with an existing stream"), []int{3}, 0, "overlap"},
		{"asked for", 3, refusal(10005, "no suitable peers for placement"), []int{3}, 0, "NATS_REPLICAS is 3, and the servers cannot keep so many"},
	} {
		server, fewer := &fakeServer{refuse: map[int]error{3: test.err}}, 0
		maker := Maker{JetStream: server, Replicas: test.wanted, Fewer: func(string, error) { fewer++ }}
		_, err := maker.Ensure(t.Context(), config)
		failed := err != nil && strings.Contains(err.Error(), test.want)
		if !slices.Equal(server.requested, test.requested) || fewer != test.fewer || failed != (test.want != "") {
			t.Errorf("%s: asked for %v replicas, Fewer %d times, %v; expected %v, %d and %q",
				test.name, server.requested, fewer, err, test.requested, test.fewer, test.want)
		}
		if strings.Contains(test.name, "overlap") && strings.Contains(err.Error(), "NATS_REPLICAS") {
			t.Errorf("%s: %v, which is not about replicas", test.name, err)
		}
	}
}

// TestOneReplicaTakesPatience refuses three replicas as a cluster does before all of its servers have joined.
func TestOneReplicaTakesPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		joining := &jetstream.APIError{ErrorCode: 10005, Description: "no suitable peers for placement"}
		server := &fakeServer{refuse: map[int]error{3: joining}}
		maker := NewMaker(server, 0, "", zap.NewNop())
		ensure := func() error {
			server.requested = nil
			_, err := maker.Ensure(t.Context(), config)
			return err
		}
		for range 2 {
			err := ensure()
			if !errors.Is(err, joining) || !slices.Equal(server.requested, []int{3}) {
				t.Errorf("%v after requests for %v, expected the refusal of three replicas", err, server.requested)
			}
			time.Sleep(Patience - time.Second)
		}
		time.Sleep(time.Second)
		if err := ensure(); err != nil || !slices.Equal(server.requested, []int{3, 1}) {
			t.Errorf("%v after requests for %v, expected one replica in the end", err, server.requested)
		}
		if err := ensure(); !errors.Is(err, joining) {
			t.Errorf("%v for the next stream, expected patience again", err)
		}
	})
}

func TestOverlapNamesTheOtherStream(t *testing.T) {
	t.Parallel()
	js := kit.JetStream(t, single(t).ClientURL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NARROW", Subjects: []string{"b.c"}, MaxBytes: 1 << 10,
	})
	kit.Check(t, err)
	_, err = (&Maker{JetStream: js}).Ensure(t.Context(), jetstream.StreamConfig{
		Name: "MINE", Subjects: []string{"b.>"}, MaxBytes: 1 << 10,
	})
	const want = "stream NARROW already has subjects of b.>"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("%v, expected %q and the server's own words", err, want)
	}
}
