package store

// FreeBytes is the free space of the disk that dir is on.
func FreeBytes(dir string) (int64, error) {
	_, free, err := diskSpace(dir)
	return free, err
}
