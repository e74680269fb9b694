package slackout

import "notifier/internal/event"

// Preview is what of an event would be posted, and where.
type Preview struct {
	Channel string // empty: the webhook's own, or none that the Config knows
	Text    string // as it is sent to Slack: escaped unless markup is allowed, and cut if it was too long
	Cut     bool   // the text is longer than Slack keeps; its end says how much is missing
	Blocks  int
}

// Preview returns what Post would send. The Config needs no credentials. The error is why the event's blocks
// cannot be posted.
func (c Config) Preview(ev event.Event) (Preview, error) {
	msg, err := buildMessage(ev, c)
	if err != nil {
		return Preview{}, err
	}
	return Preview{
		Channel: c.channel(ev), Text: msg.text, Blocks: len(msg.blocks),
		Cut: msg.text != uncut(ev.Text, c),
	}, nil
}

// uncut is the text of a message of any length.
func uncut(text string, c Config) string {
	if c.AllowMarkup {
		return text
	}
	return c.LinkHosts.Text(text, 8*len(text)+maxText) // escaping makes it no more than five times as long
}
