package devstack

import (
	"net/http"
)

// updateMessage handles chat.update of the Web API. It is treated like a post, and counts in Requests but not
// in Accepted: an edited message keeps its number, its time and its timestamp.
func (s *Slack) updateMessage(w http.ResponseWriter, r *http.Request) {
	b, scripted := s.arrived()
	if b.Delay > 0 && !s.pause(r, b.Delay) {
		cut(w)
		return
	}
	form, code := authorised(r)
	m := newMessage("api", r, form)
	if code == "" {
		code = m.problem()
	}
	if code == "" && !isChannelID.MatchString(m.Channel) { // a name is not accepted
		code = "channel_not_found"
	}
	if !scripted {
		b = s.standing(m, code, true)
	}
	if code == "" && !b.ResetBefore && (b.Accept || b.ResetAfter || !b.answers() && !b.Hang) &&
		!s.edit(m, form["ts"]) {
		code = "message_not_found"
	}
	s.answerAs(w, r, b, code, func(status int, code string) {
		if code != "" {
			writeAPI(w, status, map[string]any{"ok": false, "error": code})
			return
		}
		m.TS = form["ts"]
		writeAPI(
			w,
			status,
			map[string]any{"ok": true, "channel": m.Channel, "ts": m.TS, "text": m.Text, "message": m.stored(false)},
		)
	})
}

// edit replaces the text, the blocks and the arguments of a message with those of m; false: there is no such
// message.
func (s *Slack) edit(m Message, ts string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.messages {
		old := &s.messages[i]
		if old.TS == ts && channelID(old.Channel) == m.Channel {
			old.Text, old.Blocks, old.Form = m.Text, m.Blocks, m.Form
			s.announce()
			return true
		}
	}
	return false
}
