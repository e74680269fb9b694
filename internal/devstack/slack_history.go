//go:build !production

package devstack

import (
	"encoding/base32"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// botID is who posts here, whatever the token.
const botID = "B000"

// mostPerPage is the most messages that Slack puts on a page, and usualPerPage what it does when it is not told.
const (
	mostPerPage  = 999
	usualPerPage = 100
)

// History is how a Slack treats requests for what stands in a channel, conversations.history and
// conversations.replies. With the zero value it answers them as Slack does. Posts are not concerned.
type History struct {
	MissingScope bool   `json:"missing_scope"` // the token may post, but not read
	RetryAfter   string `json:"retry_after"`   // if set, each request is answered 429 with this header
	PageSize     int    `json:"page_size"`     // most messages on a page, however many are asked for; 0: 999
}

// SetHistory sets how requests for the history are treated from now on when nothing is queued for them.
func (s *Slack) SetHistory(h History) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = h
}

// NextHistory queues behaviours, one for each of the next requests for the history. The zero Behaviour stands for
// the truth; those that have to do with accepting say nothing here.
func (s *Slack) NextHistory(behaviours ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.historyNext = append(s.historyNext, behaviours...)
}

// HistoryRequests is how many requests for the history came in, whatever became of them.
func (s *Slack) HistoryRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func (s *Slack) historyRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/conversations.history", s.conversation(s.channelMessages))
	mux.HandleFunc("POST /api/conversations.replies", s.conversation(s.threadMessages))
	mux.HandleFunc("POST /fake/history", func(w http.ResponseWriter, r *http.Request) {
		var h History
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&h); err != nil || h.PageSize < 0 {
			http.Error(w, "a History is expected: "+errorText(err), http.StatusBadRequest)
			return
		}
		s.SetHistory(h)
		writeText(w, http.StatusOK, "ok")
	})
}

// lookArrived counts a request for the history and picks how to treat it.
func (s *Slack) lookArrived() (h History, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	s.announce()
	switch {
	case len(s.historyNext) > 0:
		b = s.historyNext[0]
		s.historyNext = s.historyNext[1:]
	case s.history.MissingScope:
		b.Code = "missing_scope"
	default:
		b.RetryAfter = s.history.RetryAfter
	}
	return s.history, b
}

// conversation answers a page of what messages finds, the oldest first, in the conversation that is asked for.
// messages returns false when there is no such thing.
func (s *Slack) conversation(messages func(form map[string]string) ([]Message, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, b := s.lookArrived()
		if b.Delay > 0 && !s.pause(r, b.Delay) {
			cut(w)
			return
		}
		form, code := authorised(r)
		if code == "" && !isChannelID.MatchString(form["channel"]) { // a name will not do
			code = "channel_not_found"
		}
		var found []Message
		if code == "" {
			var ok bool
			if found, ok = messages(form); !ok {
				code = "thread_not_found"
			}
		}
		s.answerAs(w, r, b, code, func(status int, code string) {
			if code != "" {
				writeAPI(w, status, map[string]any{"ok": false, "error": code})
				return
			}
			writeAPI(w, status, page(found, form, h, r.URL.Path == "/api/conversations.history"))
		})
	}
}

// channelMessages are the messages that stand in the channel itself, not in a thread.
func (s *Slack) channelMessages(form map[string]string) (found []Message, ok bool) {
	for _, m := range s.Messages() {
		if channelID(m.Channel) == form["channel"] && m.ThreadTS == "" {
			found = append(found, m)
		}
	}
	return found, true
}

// threadMessages are a message and the replies to it. Replies to a message that is not kept are found all the same.
func (s *Slack) threadMessages(form map[string]string) (found []Message, ok bool) {
	for _, m := range s.Messages() {
		if channelID(m.Channel) == form["channel"] && (m.TS == form["ts"] || m.ThreadTS == form["ts"]) {
			found = append(found, m)
		}
	}
	return found, len(found) > 0
}

// page cuts the page that is asked for out of messages, which are in order, the oldest first. As at Slack, pages go
// back from the newest, or with oldest and no latest forward from there; a page of the history begins with its newest
// message, one of a thread with its oldest.
func page(messages []Message, form map[string]string, h History, newestFirst bool) map[string]any {
	inclusive := isTrue(form["inclusive"])
	messages = slices.DeleteFunc(messages, func(m Message) bool {
		oldest, latest := form["oldest"], form["latest"]
		return oldest != "" && (before(m.TS, oldest) || m.TS == oldest && !inclusive) ||
			latest != "" && (before(latest, m.TS) || m.TS == latest && !inclusive)
	})
	forward := !newestFirst || form["oldest"] != "" && form["latest"] == ""
	size := usualPerPage
	if limit, err := strconv.Atoi(form["limit"]); err == nil && limit > 0 {
		size = min(limit, mostPerPage)
	}
	if h.PageSize > 0 {
		size = min(size, h.PageSize)
	}
	done, _ := strconv.Atoi(strings.TrimPrefix(form["cursor"], "after:"))
	done = min(max(done, 0), len(messages))
	count := min(size, len(messages)-done)
	from := done
	if !forward {
		from = len(messages) - done - count
	}
	shown := make([]any, 0, count)
	for _, m := range messages[from : from+count] {
		shown = append(shown, m.stored(isTrue(form["include_all_metadata"])))
	}
	if newestFirst {
		slices.Reverse(shown)
	}
	cursor := ""
	if done += count; done < len(messages) {
		cursor = "after:" + strconv.Itoa(done)
	}
	return map[string]any{
		"ok": true, "messages": shown, "has_more": cursor != "", "response_metadata": map[string]any{"next_cursor": cursor},
	}
}

// stored is the message as Slack tells of it. Without all, nothing of its metadata but the type is told.
func (m Message) stored(all bool) map[string]any {
	told := map[string]any{"type": "message", "subtype": "bot_message", "text": m.Text, "ts": m.TS, "bot_id": botID}
	if m.ThreadTS != "" {
		told["thread_ts"] = m.ThreadTS
	}
	var metadata struct {
		Type    string          `json:"event_type"`
		Payload json.RawMessage `json:"event_payload,omitempty"`
	}
	if json.Unmarshal(m.Metadata, &metadata) == nil {
		if !all {
			metadata.Payload = nil
		}
		told["metadata"] = metadata
	}
	return told
}

// isTrue reads a flag as Slack does.
func isTrue(text string) bool { return text == "1" || text == "true" }

// before compares two timestamps, "seconds.microseconds" with or without the point, by their numbers.
func before(a, b string) bool {
	x, _ := strconv.ParseFloat(a, 64) // 16 digits: exact
	y, _ := strconv.ParseFloat(b, 64)
	return x < y
}

// isChannelID is how the ID of a channel, group or direct message looks. Names are in lower case.
var isChannelID = regexp.MustCompile(`^[CDG][A-Z0-9]+$`)

// channelID is the ID of the channel that is named so: an ID's is itself, a name always has the same.
func channelID(channel string) string {
	if isChannelID.MatchString(channel) {
		return channel
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(strings.TrimPrefix(channel, "#")))
	return "C0" + base32.StdEncoding.EncodeToString(hash.Sum(nil))[:9]
}
