package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/jobspecs/ddim/sampler"
)

const (
	classCheckpoint = "checkpoint_failed"
	classResume     = "bad_checkpoint"

	// maxShardBytes bounds what is read for one shard: all the frames that a run may have, twice.
	maxShardBytes = 1 << 30
)

// writeShard puts the rank's state on disk, synced, under a name that no other attempt, step or rank uses.
func writeShard(order runner.Order, state *sampler.State) (runner.Checkpoint, error) {
	data := state.Encode()
	sum := sha256.Sum256(data)
	name := fmt.Sprintf("attempt-%d-step-%04d-rank-%03d.state", order.Number, state.Step, order.Rank)
	path := filepath.Join(order.CheckpointDir, name)
	if err := writeSynced(path, data); err != nil {
		return runner.Checkpoint{}, &runner.Error{Class: classCheckpoint, Retryable: true, Message: err.Error()}
	}
	return runner.Checkpoint{I: state.Step, Path: path, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(data))}, nil
}

// writeSynced makes a whole file or none: a crash leaves at most a .partial behind.
func writeSynced(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write a checkpoint shard: %w", err)
	}
	partial := path + ".partial"
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write a checkpoint shard: %w", err)
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		os.Remove(partial)
		return fmt.Errorf("write a checkpoint shard: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readShards puts this rank's state together from the shards of a gang checkpoint, which another number of ranks may have
// written. Only what the manifest names, with the size and the sum that it gives, is believed.
func readShards(resume *runner.Resume, first, frames int) (*sampler.State, error) {
	var states []*sampler.State
	for _, shard := range resume.Shards {
		state, err := readShard(shard)
		if err != nil {
			return nil, &runner.Error{Class: classResume, Message: err.Error()}
		}
		states = append(states, state)
	}
	state, err := sampler.Assemble(states, first, frames)
	if err == nil && state.Step != resume.Step {
		err = fmt.Errorf("%w: the shards are of step %d, the checkpoint is of step %d", sampler.ErrState, state.Step, resume.Step)
	}
	if err != nil {
		return nil, &runner.Error{Class: classResume, Message: err.Error()}
	}
	return state, nil
}

func readShard(shard runner.Shard) (*sampler.State, error) {
	info, err := os.Stat(shard.Path)
	if err != nil {
		return nil, fmt.Errorf("read rank %d's shard: %w", shard.Rank, err)
	}
	if info.Size() != shard.Bytes || info.Size() > maxShardBytes {
		return nil, fmt.Errorf("read rank %d's shard %s: it has %d bytes, want %d", shard.Rank, shard.Path, info.Size(), shard.Bytes)
	}
	data, err := os.ReadFile(shard.Path)
	if err != nil {
		return nil, fmt.Errorf("read rank %d's shard: %w", shard.Rank, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != shard.SHA256 {
		return nil, fmt.Errorf("read rank %d's shard %s: its sha256 is %x, want %s", shard.Rank, shard.Path, sum, shard.SHA256)
	}
	state, err := sampler.DecodeState(data)
	if err != nil {
		return nil, fmt.Errorf("read rank %d's shard %s: %w", shard.Rank, shard.Path, err)
	}
	return state, nil
}
