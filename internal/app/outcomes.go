package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"notifier/internal/admin"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
)

// maxPageRead bounds the messages that one request of the page costs.
const maxPageRead = 8000

// outcomes records the outcomes of this worker and reads the outcomes of all workers.
type outcomes struct {
	off      string // why nothing is recorded, or empty; then the other fields are nil
	place    recent.Place
	recorder *recent.Recorder
	reader   *recent.Reader
}

// newOutcomes connects to the stream of outcomes. If the settings allow no such stream, the worker runs without.
func (a *app) newOutcomes() (*outcomes, error) {
	place, err := recent.NewPlace(a.settings.NATS.Stream, a.settings.NATS.Pattern)
	if err != nil {
		a.log.Warn("outcomes are not recorded", zap.Error(err))
		return &outcomes{off: err.Error()}, nil
	}
	recorder, err := recent.NewRecorder(recent.Config{
		Place: place, Connection: a.connection.Conn, Replicas: a.settings.NATS.Replicas, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	reader := recent.NewReader(a.connection.Conn, place)
	a.connection.setDenied(func(err error) bool { return reader.Denied(err) || recorder.Denied(err) })
	return &outcomes{place: place, recorder: recorder, reader: reader}, nil
}

// settled records settled events of one kind.
func (o *outcomes) settled(sum result.Sum) {
	kind := recent.Kind{Category: sum.Kind.Category, Outcome: sum.Kind.Outcome, Reason: sum.Kind.Reason}
	o.recorder.Record(kind, len(sum.Results), func(i int) outcome.Record { return sum.Results[i].Record() })
}

// list serves /api/events.
func (o *outcomes) list(ctx context.Context, query admin.EventsQuery) (admin.Events, error) {
	if o.off != "" {
		return admin.Events{}, fmt.Errorf("outcomes are not recorded: %s", o.off)
	}
	answer := admin.Events{Time: time.Now().UTC(), Events: []outcome.Record{}}
	page, err := o.reader.List(ctx, recent.Filter{
		Category: query.Category, Outcome: query.Outcome, Limit: query.N, MaxRead: maxPageRead,
	})
	switch {
	case errors.Is(err, recent.ErrNoStream):
		answer.Note = "stream " + o.place.Stream + " does not exist yet, or does not allow direct reads"
	case err != nil:
		return admin.Events{}, fmt.Errorf("stream %s: %w", o.place.Stream, err)
	case len(page.Records) > 0:
		answer.Events = page.Records
	}
	if page.More {
		answer.Note = admin.OlderOmitted
	}
	return answer, nil
}
