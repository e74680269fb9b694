package kit

import "go.uber.org/goleak"

// NATSServerEnds returns goleak options for packages whose tests run NATS servers in the process. Some loops
// of such a server outlive its shutdown by a moment.
func NATSServerEnds() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(server + "/ats.Register.func1"),
		goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server + ".(*consumerFileStore).flushLoop"),
		goleak.IgnoreAnyFunction(server + ".(*msgBlock).flushLoop"),
	}
}
