gang "sea" {
  template = "ddim"
	gpus	= 	-8 # [31mred
}
