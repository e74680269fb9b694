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

// botID is the bot that posts, with any token.
const botID = "B000"

// maxPageSize is the highest number of messages on a page, and defaultPageSize the default, as at Slack.
const (
	maxPageSize     = 999
	defaultPageSize = 100
)

// History scripts the responses for the history of a channel: conversations.history and
// conversations.replies. With the zero value the fake responds as Slack does. Posts are not affected. A Mode
// with a revoked token takes precedence.
type History struct {
	MissingScope bool   // the token may post, but not read
	RetryAfter   string // if set, each request gets a 429 with this header
	PageSize     int    // most messages on a page, however many are requested; 0: 999
}

// SetHistory sets how requests for the history are treated from now on if no behaviour is queued for them.
func (s *Slack) SetHistory(h History) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = h
}

// NextHistory queues behaviours, one for each of the next requests for the history. The zero Behaviour gives
// the real history; fields that concern accepting a message have no effect.
func (s *Slack) NextHistory(behaviours ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.historyNext = append(s.historyNext, behaviours...)
}

// HistoryRequests returns how many requests for the history arrived, whatever their result.
func (s *Slack) HistoryRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.historyRequests
}

func (s *Slack) historyRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/conversations.history", s.conversation(s.channelMessages))
	mux.HandleFunc("POST /api/conversations.replies", s.conversation(s.threadMessages))
}

// historyArrived counts a request for the history and returns how to treat it.
func (s *Slack) historyArrived() (h History, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.historyRequests++
	s.announce()
	switch {
	case len(s.historyNext) > 0:
		b = s.historyNext[0]
		s.historyNext = s.historyNext[1:]
	case s.mode.Revoked:
		b.Code = "token_revoked"
	case s.history.MissingScope:
		b.Code = "missing_scope"
	default:
		b.RetryAfter = s.history.RetryAfter
	}
	return s.history, b
}

// conversation responds with a page of the requested conversation. messages returns its messages, the oldest
// first, or false if it does not exist.
func (s *Slack) conversation(messages func(form map[string]string) ([]Message, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, b := s.historyArrived()
		if b.Delay > 0 && !s.pause(r, b.Delay) {
			cut(w)
			return
		}
		form, code := authorised(r)
		if code == "" && !isChannelID.MatchString(form["channel"]) { // a name is not accepted
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

// channelMessages returns the messages in the channel itself, not in its threads.
func (s *Slack) channelMessages(form map[string]string) (found []Message, ok bool) {
	for _, m := range s.Messages() {
		if channelID(m.Channel) == form["channel"] && m.ThreadTS == "" {
			found = append(found, m)
		}
	}
	return found, true
}

// threadMessages returns a message and its replies. Replies to a message that is no longer kept are found as
// well.
func (s *Slack) threadMessages(form map[string]string) (found []Message, ok bool) {
	for _, m := range s.Messages() {
		if channelID(m.Channel) == form["channel"] && (m.TS == form["ts"] || m.ThreadTS == form["ts"]) {
			found = append(found, m)
		}
	}
	return found, len(found) > 0
}

// page returns the requested page of messages, which are sorted, the oldest first. As at Slack, pages go back
// from the newest message, or with oldest and without latest forward from the oldest; a page of the history
// begins with its newest message, one of a thread with its oldest.
func page(messages []Message, form map[string]string, h History, newestFirst bool) map[string]any {
	inclusive := isTrue(form["inclusive"])
	messages = slices.DeleteFunc(messages, func(m Message) bool {
		oldest, latest := form["oldest"], form["latest"]
		return oldest != "" && (before(m.TS, oldest) || m.TS == oldest && !inclusive) ||
			latest != "" && (before(latest, m.TS) || m.TS == latest && !inclusive)
	})
	forward := !newestFirst || form["oldest"] != "" && form["latest"] == ""
	size := defaultPageSize
	if limit, err := strconv.Atoi(form["limit"]); err == nil && limit > 0 {
		size = min(limit, maxPageSize)
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
		"ok":                true,
		"messages":          shown,
		"has_more":          cursor != "",
		"response_metadata": map[string]any{"next_cursor": cursor},
	}
}

// stored returns the message as Slack does. Without all, its metadata has only the type.
func (m Message) stored(all bool) map[string]any {
	fields := map[string]any{
		"type":    "message",
		"subtype": "bot_message",
		"text":    m.Text,
		"ts":      m.TS,
		"bot_id":  botID,
	}
	if m.ThreadTS != "" {
		fields["thread_ts"] = m.ThreadTS
	}
	var metadata struct {
		Type    string          `json:"event_type"`
		Payload json.RawMessage `json:"event_payload,omitempty"`
	}
	if json.Unmarshal(m.Metadata, &metadata) == nil {
		if !all {
			metadata.Payload = nil
		}
		fields["metadata"] = metadata
	}
	return fields
}

// isTrue parses a flag as Slack does.
func isTrue(text string) bool { return text == "1" || text == "true" }

// before compares two timestamps, "seconds.microseconds" with or without the point, by their numbers.
func before(a, b string) bool {
	x, _ := strconv.ParseFloat(a, 64) // 16 digits: exact
	y, _ := strconv.ParseFloat(b, 64)
	return x < y
}

// isChannelID matches the ID of a channel, group or direct message. Names are in lower case.
var isChannelID = regexp.MustCompile(`^[CDG][A-Z0-9]+$`)

// channelID returns the ID of a channel: an ID is its own, and a name always has the same ID.
func channelID(channel string) string {
	if isChannelID.MatchString(channel) {
		return channel
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(strings.TrimPrefix(channel, "#")))
	return "C0" + base32.StdEncoding.EncodeToString(hash.Sum(nil))[:9]
}
