package venue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed-3d0f8764/retry"
)

// ErrStale is the error of a Save whose revision is not the next one: another
// worker has gone on with the job.
var ErrStale = errors.New("venue: another worker has gone on with this job")

// Store keeps the state of one operation on disk, for a [retry.Journal]. Its
// folder has a file for each revision, named by its number. None is changed or
// removed, so the last one is the state and all of them are the history;
// whoever is done with the job removes the folder.
//
// A process that is killed, or a machine that loses power, leaves the state
// saved last or the one whose Save had not returned, and never half of one.
// What a killed Save has begun stays behind under another name and is not read.
// Several processes may use one folder: of those that save the same revision
// one succeeds. The file system must know hard links.
type Store struct {
	dir string
}

// Open returns the store in dir, which is made if need be; its parent must exist.
func Open(dir string) (*Store, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("venue: opening a store: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("venue: opening a store: %w", err)
	}
	return &Store{dir}, nil
}

// Load returns the state saved last, and the zero State where there is none.
// A file that cannot be read is an error: to begin anew could send twice.
func (s *Store) Load() (retry.State, error) {
	last, err := s.last()
	if err != nil || last == 0 {
		return retry.State{}, err
	}
	var state retry.State
	text, err := os.ReadFile(s.file(last))
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err == nil && state.Revision != last {
		err = fmt.Errorf("it has revision %d", state.Revision)
	}
	if err != nil {
		return retry.State{}, fmt.Errorf("venue: loading %s: %w", s.file(last), err)
	}
	return state, nil
}

// Save is a [retry.Journal]'s Save. When it returns nil, state is on the disk.
// It is ErrStale unless the revision of state is one above the last. It is not
// cut short by ctx: what a killed operation must know is saved when ctx is done.
func (s *Store) Save(_ context.Context, state retry.State) error {
	last, err := s.last()
	if err != nil {
		return err
	}
	if state.Revision != last+1 {
		return fmt.Errorf("%w: revision %d is stored, and %d cannot follow", ErrStale, last, state.Revision)
	}
	if err := s.write(state); err != nil {
		return fmt.Errorf("venue: saving %s: %w", s.file(state.Revision), err)
	}
	return nil
}

// write puts state into a file of another name, then gives it its own. Unlike
// a rename, a link does not replace what another worker has stored meanwhile.
func (s *Store) write(state retry.State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "unfinished-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync() // before it has its name: a name without its content is half a state
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), s.file(state.Revision)); errors.Is(err, fs.ErrExist) {
		return ErrStale
	} else if err != nil {
		return err
	}
	return syncDir(s.dir)
}

// last returns the highest revision, 0 where there is none.
func (s *Store) last() (int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("venue: reading a store: %w", err)
	}
	var last int64
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 64); err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

func (s *Store) file(revision int64) string {
	return filepath.Join(s.dir, strconv.FormatInt(revision, 10))
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
