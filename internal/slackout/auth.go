package slackout

import (
	"context"
	"encoding/json"
	"strings"
)

// Identity is whom Slack takes a token for.
type Identity struct {
	Team  string // the workspace
	User  string // the bot's user
	BotID string // empty where the token is no bot's
	// Scopes are what the token may do, as Slack lists them; nil: it has not said.
	Scopes []string
}

// CheckAuth asks Slack whether the token is good, and whose it is (auth.test). A webhook cannot be asked without
// posting to it: then nothing is sent, and the Identity is empty. Errors are as those of Post.
func (p *Poster) CheckAuth(ctx context.Context) (Identity, error) {
	if p.api == nil {
		return Identity{}, nil
	}
	var who Identity
	_, err := p.attempt(ctx, func(x *exchange) (reply, *Error) {
		answer, failure := classifyAPI(x)
		if failure == nil && !who.read(x) {
			failure = &Error{Class: Retry, Code: "invalid_response"}
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

// read takes the Identity out of a good answer, and reports whether it could.
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

// IsChannelID reports whether a channel is given by its ID, and not by its name.
func IsChannelID(channel string) bool { return isID.MatchString(channel) }
