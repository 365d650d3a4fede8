// Package video turns the sampler's frames into files that anyone can watch: enlarged, toned, and encoded as MP4 by ffmpeg
// where that is on PATH, else as an animated GIF. The same frames give the same bytes.
package video
