package digest

import (
	"encoding/json"
	"fmt"
	"time"

	"notifier/internal/status/stats"
)

// editWindow is how long a message is edited before a new one is posted instead.
const editWindow = time.Hour

// message is a digest that was posted with a token, as it is stored for later edits.
type message struct {
	Asked   string       `json:"asked"`   // the channel as configured
	Channel string       `json:"channel"` // from Slack's response: an edit needs its ID
	TS      string       `json:"ts"`
	Posted  time.Time    `json:"posted"` // by the clock of Redis
	Since   time.Time    `json:"since"`  // of its first drop
	Drops   []stats.Drop `json:"drops"`  // all that it reports
}

// editable reports whether a digest for this channel can be added to the message.
func (m message) editable(channel string, now time.Time) bool {
	age := now.Sub(m.Posted)
	return m.TS != "" && m.Channel != "" && m.Asked == channel && age >= 0 && age < editWindow
}

// text is the text of the message, with the sentences about what is free and muted.
func (m message) text(now time.Time, free string, sources []stats.SourceSlot) string {
	return text(now.Sub(m.Since), m.Drops, free, blame{sources, m.Since})
}

// encode returns the stored form; empty: the message cannot be edited.
func (m message) encode() string {
	encoded, err := json.Marshal(m)
	if err != nil || m.TS == "" { // err: a time beyond the year 9999
		return ""
	}
	return string(encoded)
}

// decodeMessage decodes the result of encode; an empty text gives a message that is not editable.
func decodeMessage(text string) (message, error) {
	var m message
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return message{}, fmt.Errorf("%.60q, expected a message: %w", text, err)
	}
	for _, drop := range m.Drops {
		if drop.Count < 1 {
			return message{}, fmt.Errorf("%d drops of %.60q, expected 1 or more", drop.Count, drop.Category)
		}
	}
	return m, nil
}

// merge adds up drops. At most stats.MaxCategories categories keep their names; the rest count as
// stats.OtherCategory, as they do in Redis.
func merge(old, more []stats.Drop) []stats.Drop {
	known := map[string]bool{stats.OtherCategory: true}
	at := map[stats.Drop]int{}
	var all []stats.Drop
	for _, drops := range [][]stats.Drop{old, more} {
		for _, drop := range drops {
			if !known[drop.Category] {
				if len(known) > stats.MaxCategories {
					drop.Category = stats.OtherCategory
				} else {
					known[drop.Category] = true
				}
			}
			kind := drop
			kind.Count = 0
			if i, found := at[kind]; found {
				all[i].Count += drop.Count
			} else {
				at[kind] = len(all)
				all = append(all, drop)
			}
		}
	}
	return all
}

func total(drops []stats.Drop) (n int64) {
	for _, drop := range drops {
		n += drop.Count
	}
	return n
}
