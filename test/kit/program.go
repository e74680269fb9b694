package kit

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Program is a build of notifier, or of another program of the module, made when it is first needed.
type Program struct {
	Package string // import path, notifier's by default
	Tags    string // build tags
	Version string // version to report; by default the version of this code

	once sync.Once
	path string
	err  error
}

// Build builds the program into a folder unless that was done before, and returns its path. It ends the test
// when that fails.
func (p *Program) Build(t testing.TB, folder string) string {
	t.Helper()
	p.once.Do(func() {
		name := cmp.Or(p.Package, "notifier/cmd/notifier")
		p.path = filepath.Join(folder, path.Base(name))
		if p.Tags+p.Version != "" {
			p.path += "-" + p.Tags + p.Version
		}
		flags := "-X notifier/internal/buildinfo.version=" + p.Version
		out, err := exec.Command("go", "build", "-tags", p.Tags, "-ldflags", flags, "-o", p.path, name).
			CombinedOutput()
		if err != nil {
			p.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	Check(t, p.err)
	return p.path
}

// StartWithTest starts a process that ends with the test, also when the test is killed if the system supports
// that. The channel is closed when the process has ended; command.ProcessState is final then.
func StartWithTest(t testing.TB, command *exec.Cmd) (ended <-chan struct{}, err error) {
	t.Helper()
	command.SysProcAttr = diesWithTest()
	done, started := make(chan struct{}), make(chan error)
	go func() {
		// The thread that starts the process has to live as long as it: see diesWithTest. It is never unlocked, and
		// ends with this goroutine.
		runtime.LockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // the error is in command.ProcessState too
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-done
	})
	return done, nil
}

// InFolder runs the tests of a package with a folder for the programs that they build, and removes it. It
// belongs into TestMain.
func InFolder(m *testing.M, folder *string) int {
	var err error
	if *folder, err = os.MkdirTemp("", "notifier-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(*folder) }()
	return m.Run()
}
