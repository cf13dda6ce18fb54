package browsertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// conn is a running browser: JSON messages, each ended by a zero byte, go in
// through its file descriptor 3 and come out of 4.
type conn struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	reader chan struct{} // closed when the browser said its last word

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// start runs the browser. Events go to event, from one goroutine.
func start(cmd *exec.Cmd, event func(method string, params json.RawMessage)) (*conn, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	// A group of its own, so that none of its processes outlives the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = errors.Join(cmd.Start(), theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	c := &conn{cmd: cmd, in: in, out: out, reader: make(chan struct{}), waiting: map[int]chan answer{}}
	go c.read(event)
	return c, nil
}

func (c *conn) read(event func(string, json.RawMessage)) {
	defer close(c.reader)
	r := bufio.NewReader(c.out)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			answer
		}
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m); err != nil {
			continue
		}
		if m.ID == 0 {
			event(m.Method, m.Params)
			continue
		}
		c.mu.Lock()
		if w := c.waiting[m.ID]; w != nil {
			w <- m.answer
			delete(c.waiting, m.ID)
		}
		c.mu.Unlock()
	}
}

// call sends a command to the tab of a session ("" is the browser itself) and
// reads its result.
func (c *conn) call(session, method string, params, result any) error {
	c.mu.Lock()
	c.last++
	id, wait := c.last, make(chan answer, 1)
	c.waiting[id] = wait
	c.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(b, 0)); err != nil {
		return fmt.Errorf("speak to the browser: %w", err)
	}
	select {
	case a := <-wait:
		if a.Error != nil {
			return errors.New(a.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-c.reader:
		return errors.New("the browser has ended")
	case <-time.After(2 * maxWait):
		return errors.New("the browser does not answer")
	}
}

// close ends the browser and everything it started, and waits for it.
func (c *conn) close() error {
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	_ = c.call("", "Browser.close", nil, nil) // it may have ended by itself
	var err error
	select {
	case err = <-ended:
	case <-time.After(5 * time.Second):
		err = errors.New("it had to be killed")
	}
	// What it started shares its group.
	if kill := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL); kill != nil && !errors.Is(kill, syscall.ESRCH) {
		err = errors.Join(err, kill)
	}
	return errors.Join(err, c.in.Close(), c.out.Close())
}
