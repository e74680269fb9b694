package kit

import "go.uber.org/goleak"

// NATSServerEnds are options for goleak in packages whose tests run NATS servers in the process: some loops
// of such a server end a moment after it has been shut down, and are not ours.
func NATSServerEnds() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(server + "/ats.Register.func1"),
		goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server + ".(*consumerFileStore).flushLoop"),
		goleak.IgnoreAnyFunction(server + ".(*msgBlock).flushLoop"),
	}
}
