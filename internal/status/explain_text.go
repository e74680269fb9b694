package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"notifier/internal/term"
)

// Lines is the explanation for people.
func (e Explanation) Lines(screen term.Screen) string {
	var text strings.Builder
	colour := term.Green
	if !e.Forecast.Sends {
		colour = term.Yellow
	}
	answer := e.Forecast.Text(e.Time)
	switch {
	case e.Stopped != "":
		colour = term.Red
		answer = "Nothing is sent: " + e.Stopped + "."
	case e.Forecast.Sends && e.Refused != "":
		colour = term.Red
		answer = "An event would be admitted now, but not sent: its channel rejects every message."
	case e.Forecast.Sends && e.channelKeeps():
		colour = term.Yellow
		answer = "An event would be admitted now, and sent when its channel takes it."
	}
	if e.Impossible {
		colour = term.Red
		answer = fmt.Sprintf("No event can have this category: no subject of NATS_SUBJECT %s gives it.", e.Subject)
	}
	fmt.Fprintln(&text, screen.Paint(colour, term.Printable(answer)))
	if e.Unseen != "" && !e.Impossible {
		fmt.Fprintln(&text, term.Printable(e.Unseen))
	}
	for _, warning := range e.Settings.Warnings {
		fmt.Fprintln(&text, screen.Paint(term.Red, term.Printable(warning)))
	}
	text.WriteByte('\n')
	table := term.NewTable(&text)
	for _, row := range e.rows() {
		table.Row(row[0], row[1])
	}
	_ = table.Flush() // a strings.Builder takes everything
	return text.String()
}

// rows are what applies, each with what it is.
func (e Explanation) rows() [][2]string {
	rows := [][2]string{{"category", e.Category}, {"group", e.Group}}
	for _, limit := range e.Limits {
		for i, tier := range limit.Tiers {
			name := limit.Level + " limit"
			if i > 0 {
				name = ""
			}
			rows = append(rows, [2]string{name, e.limitText(limit, tier)})
		}
	}
	rows = append(
		rows,
		[2]string{"reserve", e.reserveText()},
		[2]string{"mute", e.muteText()},
		[2]string{"channel", e.channelText()},
		[2]string{"pace", e.paceText()},
	)
	for _, pause := range e.Pauses {
		rows = append(rows, [2]string{"", pause.Text})
	}
	if e.Unposted != nil {
		rows = append(rows, [2]string{"", e.Unposted.Text})
	}
	if e.Refused != "" {
		rows = append(rows, [2]string{"", refusedText(cmp.Or(e.Channel, webhookChannel), e.Refused)})
	}
	if e.MaxAgeS > 0 {
		rows = append(
			rows,
			[2]string{
				"age",
				fmt.Sprintf(
					"events older than %s are dropped",
					term.ShortDuration(time.Duration(e.MaxAgeS*float64(time.Second))),
				),
			},
		)
	}
	whose := fmt.Sprintf("those of %s", term.Count(e.Settings.Replicas, "replica"))
	return append(rows, [2]string{"settings", cmp.Or(e.Settings.OwnText, whose)})
}

// limitText is a tier: "10/30m, 10 of 10 used, room in 4m12s (14:32:07) (LIMIT_OVERRIDES team-a.>)".
func (e Explanation) limitText(limit AppliedLimit, tier Tier) string {
	at := tier.roomAt(e.Time)
	room := "room " + Forecast{Sends: tier.FreeS <= 0, At: &at, AtLeast: tier.AtLeast}.Cell(e.Time, "")
	text := fmt.Sprintf("%s, %d of %d used, %s", tier.Limit, tier.Used, tier.Max, room)
	switch {
	case tier.keptOnly():
		text = fmt.Sprintf(
			"%s, %d of %d used, the other %d kept for others",
			tier.Limit,
			tier.Used,
			tier.Max,
			tier.Max-tier.Used,
		)
	case tier.Kept > 0:
		text += fmt.Sprintf(", %d kept for others", tier.Kept)
	}
	return fmt.Sprintf("%s (%s)", text, strings.TrimSpace(limit.Variable+" "+limit.Name))
}

func (e Explanation) reserveText() string {
	if e.Reserve == nil {
		return "none"
	}
	return fmt.Sprintf(
		"%s of the global limit, %d not used (LIMIT_RESERVE)",
		term.Count(e.Reserve.Slots, "slot"),
		e.Reserve.Kept,
	)
}

func (e Explanation) muteText() string {
	if e.Mute == nil {
		return "none"
	}
	text := fmt.Sprintf(
		"%s until %s by %s: %s",
		e.Mute.Target,
		e.Mute.Until.Format(time.RFC3339),
		e.Mute.By,
		e.Mute.Reason,
	)
	return strings.TrimSuffix(text, ": ")
}

func (e Explanation) channelText() string {
	channel := cmp.Or(e.Channel, "the webhook's")
	switch {
	case e.RouteUnknown:
		return channel + " or that of a route: SLACK_ROUTES is too long for a heartbeat"
	case e.Route != "":
		return fmt.Sprintf("%s (SLACK_ROUTES %s)", channel, e.Route)
	case e.Channel == "":
		return channel
	}
	return channel + " (SLACK_CHANNEL)"
}

func (e Explanation) paceText() string {
	if e.Pace == "off" {
		return "off"
	}
	return e.Pace + " for all events of the channel"
}
