package kit

import "syscall"

// diesWithTest makes the system kill a process when the thread that started it ends, however that ends.
func diesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
