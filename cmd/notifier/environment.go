package main

import (
	"os"
	"reflect"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// environment is every setting as text, in the order of the README's table. The tags are the one list of names and
// defaults, and of those that must not be shown as they are (origin.go); config.go gives the texts a meaning.
type environment struct {
	NATSURL        string `envconfig:"NATS_URL" default:"nats://127.0.0.1:4222" shown:"servers"`
	NATSMode       string `envconfig:"NATS_MODE" default:"jetstream"`
	NATSSubject    string `envconfig:"NATS_SUBJECT" default:"notify.>"`
	NATSStream     string `envconfig:"NATS_STREAM" default:"NOTIFY"`
	NATSConsumer   string `envconfig:"NATS_CONSUMER" default:"notifier"`
	NATSCredsFile  string `envconfig:"NATS_CREDS_FILE"`
	NATSNKeyFile   string `envconfig:"NATS_NKEY_FILE"`
	NATSTLSCA      string `envconfig:"NATS_TLS_CA"`
	NATSTLSCert    string `envconfig:"NATS_TLS_CERT"`
	NATSTLSKey     string `envconfig:"NATS_TLS_KEY"`
	RedisURL       string `envconfig:"REDIS_URL" default:"redis://127.0.0.1:6379/0" shown:"redis"`
	RedisNamespace string `envconfig:"REDIS_NAMESPACE" default:"notifier"`
	RedisTLSCA     string `envconfig:"REDIS_TLS_CA"`
	RedisTLSCert   string `envconfig:"REDIS_TLS_CERT"`
	RedisTLSKey    string `envconfig:"REDIS_TLS_KEY"`
	LimitGlobal    string `envconfig:"LIMIT_GLOBAL" default:"100/30m"`
	LimitCategory  string `envconfig:"LIMIT_CATEGORY" default:"10/30m"`
	LimitOverrides string `envconfig:"LIMIT_OVERRIDES"`
	DedupeWindow   string `envconfig:"DEDUPE_WINDOW" default:"24h"`
	EventMaxAge    string `envconfig:"EVENT_MAX_AGE" default:"0"`
	EventMaxBytes  string `envconfig:"EVENT_MAX_BYTES" default:"65536"`

	SlackBotToken   string `envconfig:"SLACK_BOT_TOKEN" shown:"never"`
	SlackWebhookURL string `envconfig:"SLACK_WEBHOOK_URL" shown:"never"`
	SlackChannel    string `envconfig:"SLACK_CHANNEL"`
	SlackRoutes     string `envconfig:"SLACK_ROUTES"`
	SlackAPIURL     string `envconfig:"SLACK_API_URL" shown:"host"`
	SlackMarkup     string `envconfig:"SLACK_MARKUP" default:"escape"`
	SlackTimeout    string `envconfig:"SLACK_TIMEOUT" default:"10s"`

	SendConcurrency   string `envconfig:"SEND_CONCURRENCY" default:"8"`
	BatchSize         string `envconfig:"BATCH_SIZE" default:"512"`
	DeadLetterSubject string `envconfig:"DEAD_LETTER_SUBJECT" default:"notify-dead"`
	DroppedSubject    string `envconfig:"DROPPED_SUBJECT"`
	DigestInterval    string `envconfig:"DIGEST_INTERVAL" default:"0"`
	DigestChannel     string `envconfig:"DIGEST_CHANNEL"`
	AdminAddr         string `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8080" emptyMeansNone:"true"`
	ShutdownTimeout   string `envconfig:"SHUTDOWN_TIMEOUT" default:"25s"`
	LogLevel          string `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat         string `envconfig:"LOG_FORMAT" default:"json"`
}

// readEnvironment reads every variable, from the environment or from the file that X_FILE names. A variable that is
// set to nothing counts as not set, because docker-compose hands on unset variables as empty ones.
func readEnvironment(faults *faults) environment {
	env, _ := readOrigins(faults)
	return env
}

// readOrigins is readEnvironment, and tells of each variable where its value came from.
func readOrigins(faults *faults) (environment, []origin) {
	var env environment
	if err := envconfig.Process("", &env); err != nil {
		// Every field is a text, so there is nothing that envconfig could fail to parse.
		faults.add("environment", "%v", err)
		return env, nil
	}
	fields := reflect.ValueOf(&env).Elem()
	origins := make([]origin, fields.NumField())
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		name := tag.Get("envconfig")
		value := fields.Field(i)
		from := origin{name: name, rule: tag.Get("shown"), source: fromEnvironment}
		if path := os.Getenv(name + "_FILE"); path != "" {
			if os.Getenv(name) != "" {
				faults.add(name, "is set, and so is %s_FILE; expected one of them", name)
				continue
			}
			content, err := readFile(path)
			if err != nil {
				faults.add(name+"_FILE", "%v; expected a readable file that holds the value of %s", err, name)
				continue
			}
			value.SetString(strings.TrimRight(string(content), "\r\n")) // without the line end that editors leave
			from.source, from.file = fromFile, path
		}
		if value.String() == "" && tag.Get("emptyMeansNone") == "" {
			value.SetString(tag.Get("default"))
			from.source, from.file = fromDefault, ""
		} else if _, set := os.LookupEnv(name); !set && from.source == fromEnvironment {
			from.source = fromDefault
		}
		from.value = value.String()
		origins[i] = from
	}
	return env, origins
}

// defaultEnvironment is what readEnvironment gives where no variable is set.
func defaultEnvironment() environment {
	var env environment
	fields := reflect.ValueOf(&env).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetString(fields.Type().Field(i).Tag.Get("default"))
	}
	return env
}
