package nomadplugin

import (
	"context"

	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// apiVersion is the version of the plugin API of both kinds, unchanged from
// Nomad 0.9 to 2.0.
const apiVersion = "v0.1.0"

// Info names a plugin.
type Info struct {
	Name    string // in the agent's plugin block; a driver's name in jobs
	Version string // semver, without a leading v
}

// Plugin is what plugins of both kinds answer. Nomad also starts a plugin
// just to ask for its Info, and once more to try a configuration with
// SetConfig: work begins with the kind's own calls, not here.
type Plugin interface {
	Info() Info
	// ConfigSchema tells what the plugin block may contain; nil is nothing.
	ConfigSchema() *schema.Spec
	// SetConfig takes the operator's configuration. Its error ends the start
	// of the agent and is shown to the operator.
	SetConfig(Config) error
}

// baseServer answers the calls common to both kinds.
type baseServer struct {
	basepb.UnimplementedBasePluginServer
	plugin Plugin
	kind   basepb.PluginType
}

func (s *baseServer) PluginInfo(context.Context, *basepb.PluginInfoRequest) (*basepb.PluginInfoResponse, error) {
	info := s.plugin.Info()
	return &basepb.PluginInfoResponse{
		Type:              s.kind,
		PluginApiVersions: []string{apiVersion},
		PluginVersion:     info.Version,
		Name:              info.Name,
	}, nil
}

func (s *baseServer) ConfigSchema(context.Context, *basepb.ConfigSchemaRequest) (*basepb.ConfigSchemaResponse, error) {
	return &basepb.ConfigSchemaResponse{Spec: s.plugin.ConfigSchema()}, nil
}

func (s *baseServer) SetConfig(ctx context.Context, request *basepb.SetConfigRequest) (*basepb.SetConfigResponse, error) {
	if err := s.plugin.SetConfig(request.GetMsgpackConfig()); err != nil {
		return nil, wireError(ctx, err)
	}
	return &basepb.SetConfigResponse{}, nil
}
