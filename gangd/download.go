package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/gangd/gangd/internal/gang"
)

// download writes a gang's artifact to path, whole or not at all.
func (c *client) download(ctx context.Context, g gang.Status, path string) error {
	if g.Artifact == nil {
		return fmt.Errorf("%s succeeded and left no artifact, so that %s is not written: its runner named no file as the result, which code with protocol = \"none\" cannot do", g.ID, path)
	}
	answer, err := c.open(ctx, "GET", "/v1/gangs/"+url.PathEscape(string(g.ID))+"/artifact", "", nil, "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	f, err := os.CreateTemp(filepath.Dir(path), ".gangd-*")
	if err != nil {
		return fmt.Errorf("write the artifact to %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	defer f.Close()

	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), answer.Body); err != nil {
		return fmt.Errorf("write the artifact to %s: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != g.Artifact.SHA256 {
		return fmt.Errorf("the artifact of %s arrived with SHA-256 %s, and its record says %s: it was not kept", g.ID, got, g.Artifact.SHA256)
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("write the artifact to %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write the artifact to %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write the artifact: %w", err)
	}
	return nil
}
