package main

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/config"
)

// serve runs the agent until ctx ends.
func serve(context.Context, *config.Agent, hclog.Logger) error {
	return errors.New("this gangd was built without the wiring of its agent")
}
