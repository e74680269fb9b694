package settings

import (
	"fmt"
	"io/fs"
	"os"
)

// ExposedFile is a file with a secret that every user of the machine, or of the container, may read or write.
type ExposedFile struct {
	Variable string // that names it
	Path     string
	Mode     fs.FileMode // its permissions
}

func (e ExposedFile) String() string {
	return fmt.Sprintf("%s: %s has mode %04o, so other users may read or write it", e.Variable, e.Path, e.Mode)
}

// secretPaths are the settings that are paths of secrets themselves.
var secretPaths = []string{"NATS_CREDS_FILE", "NATS_NKEY_FILE", "NATS_TLS_KEY", "REDIS_TLS_KEY"}

// othersMayUse are the permissions to read and to write for those who are neither owner nor in the group. A
// group may be how a secret gets to a user that owns no files (fsGroup in Kubernetes).
const othersMayUse fs.FileMode = 0o006

// exposed lists the files of secrets that others may use. Of a file that cannot be looked at nothing is
// known: reading it has failed as well, and is among the problems.
func exposed(origins []Origin) []ExposedFile {
	var list []ExposedFile
	look := func(variable, path string) {
		if info, err := os.Stat(path); err == nil && info.Mode()&othersMayUse != 0 {
			list = append(list, ExposedFile{Variable: variable, Path: path, Mode: info.Mode().Perm()})
		}
	}
	for _, origin := range origins {
		if origin.Source == FromFile && origin.rule != "" { // secrets only
			look(origin.Name+"_FILE", origin.File)
		}
		for _, name := range secretPaths {
			if origin.Name == name && origin.value != "" {
				look(name, origin.value)
			}
		}
	}
	return list
}
