// Gangd-driver is the Nomad task driver "gang". The same program is the keeper
// of a lane, which the driver starts.
package main

import (
	"os"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/keeper"
	"github.com/gangd/gangd/plugins/driver/task"
)

// version is set by the linker. Nomad refuses a plugin whose version is not
// semantic.
var version = "0.0.0-dev"

func main() {
	if len(os.Args) == 3 && os.Args[1] == keeper.Argument {
		os.Exit(keeper.Main(os.Args[2]))
	}
	log := nomadplugin.NewLogger()
	nomadplugin.ServeDriver(task.New(version, log), log)
}
