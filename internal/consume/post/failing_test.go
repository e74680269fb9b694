package post

import (
	"testing"
	"time"
)

func TestFailingEventsAreBounded(t *testing.T) {
	var s Sender
	s.failing.note(&posting{}, time.Second)
	if list := s.Failing(); len(list) != 0 {
		t.Errorf("%+v, expected none: Slack has not answered yet", list)
	}
	failed := make([]*posting, maxFailing+1)
	for i := range failed {
		failed[i] = &posting{channel: "#a", failure: "http_500"}
		s.failing.note(failed[i], 0)
	}
	if list := s.Failing(); len(list) != maxFailing {
		t.Errorf("%d are known, expected %d", len(list), maxFailing)
	}
	s.failing.note(failed[0], time.Minute) // already listed; fails again
	for _, p := range failed[1:] {
		s.failing.forget(p)
	}
	list := s.Failing()
	if len(list) != 1 {
		t.Fatalf("%+v, expected the one that has not ended", list)
	}
	if e := list[0]; e.Error != "http_500" || e.Channel != "#a" || time.Until(e.Next) < time.Second {
		t.Errorf("%+v, expected the one that has not ended, in a minute", list)
	}
}
