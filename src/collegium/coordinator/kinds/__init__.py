"""What follows from each kind of question, one file each; `coordinator.release` pays, asks, opens and keeps."""
