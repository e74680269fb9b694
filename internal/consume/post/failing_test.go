package post

import (
	"testing"
	"time"
)

func TestOnlyAFewFailingEventsAreKnown(t *testing.T) {
	var s Sender
	s.failing.note(&posting{}, time.Second)
	if list := s.Failing(); len(list) != 0 {
		t.Errorf("%+v, expected none: Slack has not answered yet", list)
	}
	failed := make([]*posting, mostFailing+1)
	for i := range failed {
		failed[i] = &posting{channel: "#a", failure: "http_500"}
		s.failing.note(failed[i], 0)
	}
	if list := s.Failing(); len(list) != mostFailing {
		t.Errorf("%d are known, expected %d", len(list), mostFailing)
	}
	s.failing.note(failed[0], time.Minute) // it is known, and has failed again
	for _, p := range failed[1:] {
		s.failing.forget(p)
	}
	list := s.Failing()
	if len(list) != 1 || list[0].Error != "http_500" || list[0].Channel != "#a" || time.Until(list[0].Next) < time.Second {
		t.Errorf("%+v, expected the one that has not ended, in a minute", list)
	}
}
