package slackout

import (
	"context"
	"encoding/json"
	"strings"
)

// Identity is the bot and the workspace that a token belongs to.
type Identity struct {
	Team  string // the workspace
	User  string // the bot's user
	BotID string // empty if the token is not a bot token
	// Scopes are the scopes of the token, as Slack lists them; nil: Slack has not listed any.
	Scopes []string
}

// CheckAuth checks the token with auth.test and returns its identity. A webhook cannot be checked without
// posting to it, so with a webhook CheckAuth sends nothing and returns an empty Identity. Errors are as for
// Post, but never Ambiguous.
func (p *Poster) CheckAuth(ctx context.Context) (Identity, error) {
	if p.api == nil {
		return Identity{}, nil
	}
	var who Identity
	_, err := p.attempt(ctx, func(x *exchange) (reply, *Error) {
		answer, failure := classifyAPI(x)
		switch {
		case failure == nil && !who.read(x):
			failure = &Error{Class: Retry, Code: notSlack}
		case failure != nil && failure.Class == Ambiguous: // nothing was to be posted
			failure.Class = Retry
		}
		return answer, failure
	}, func(ctx context.Context) {
		_, _ = p.api.AuthTestContext(ctx)
	})
	if err != nil {
		return Identity{}, err
	}
	return who, nil
}

// read reads the Identity from a successful response, and reports whether that was possible.
func (i *Identity) read(x *exchange) bool {
	var answer struct {
		Team  string `json:"team"`
		User  string `json:"user"`
		BotID string `json:"bot_id"`
	}
	if json.Unmarshal(x.body, &answer) != nil {
		return false
	}
	i.Team, i.User, i.BotID = answer.Team, answer.User, answer.BotID
	for _, scope := range strings.Split(x.header.Get("X-OAuth-Scopes"), ",") {
		if scope = strings.TrimSpace(scope); scope != "" {
			i.Scopes = append(i.Scopes, scope)
		}
	}
	return true
}

// IsChannelID reports whether channel is the ID of a channel, and not its name.
func IsChannelID(channel string) bool { return isID.MatchString(channel) }
