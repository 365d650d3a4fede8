package keeper

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/gangd/gangd/internal/link/linkpb"
)

// checkWorld says why an order is none for a lane of so many ranks, or "". It
// counts GPUs, as gangd does.
func checkWorld(r *linkpb.Run, ranks, gpusPerRank int) string {
	first, gpus, world := int(r.GetFirstRank()), ranks*gpusPerRank, int(r.GetWorld())
	switch {
	case first+gpus > world:
		return fmt.Sprintf("GPUs %d to %d are not in a gang of %d", first, first+gpus-1, world)
	case len(r.GetPeers()) != world:
		return fmt.Sprintf("the order names %d hosts for a gang of %d GPUs", len(r.GetPeers()), world)
	case first%gpusPerRank != 0 || world%gpusPerRank != 0:
		return fmt.Sprintf("GPUs %d to %d of a gang of %d are no rank: each has %d GPUs", first, first+gpus-1, world, gpusPerRank)
	}
	return ""
}

// ofProcesses turns an order, which counts GPUs, into one that counts
// processes: the world that ranks are told of, and gangd hears of. All members
// of a gang have as many GPUs, so that each lane comes to the same.
func ofProcesses(r *linkpb.Run, gpusPerRank int) *linkpb.Run {
	if gpusPerRank == 1 {
		return r
	}
	own := proto.CloneOf(r)
	own.FirstRank, own.World = r.GetFirstRank()/uint32(gpusPerRank), r.GetWorld()/uint32(gpusPerRank)
	own.Peers = nil
	for gpu := 0; gpu < len(r.GetPeers()); gpu += gpusPerRank {
		own.Peers = append(own.Peers, r.GetPeers()[gpu])
	}
	return own
}

// span names the ranks of a lane.
func span(first uint32, ranks int) string {
	if ranks == 1 {
		return fmt.Sprintf("rank %d", first)
	}
	return fmt.Sprintf("ranks %d-%d", first, int(first)+ranks-1)
}
