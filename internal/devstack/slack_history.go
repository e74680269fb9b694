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

// conversation responds with a page of the requested conversation. messages returns its messages, the oldest
// first, or false if it does not exist.
func (s *Slack) conversation(messages func(form map[string]string) ([]Message, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		form, code := authorised(r)
		if code == "" && !isChannelID.MatchString(form["channel"]) { // a name is not accepted
			code = "channel_not_found"
		}
		req := Request{strings.TrimPrefix(r.URL.Path, "/api/"), newMessage("api", r, form)}
		s.respond(w, r, req, code, func(a reply) {
			found, ok := messages(form)
			if a.code == "" && !ok {
				a.code = "thread_not_found"
			}
			if a.code != "" {
				writeError(w, a)
				return
			}
			writeAPI(w, a.status, page(found, form, a.PageSize, req.Method == "conversations.history"))
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
func page(messages []Message, form map[string]string, maxSize int, newestFirst bool) map[string]any {
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
	if maxSize > 0 {
		size = min(size, maxSize)
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
