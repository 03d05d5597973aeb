#!/bin/sh
# archive.sh DIR DEST: copies every .txt file of DIR to DEST and says how many.
dir=$1
dest=$2
count=0
mkdir -p $dest
for file in $(ls $dir/*.txt); do
	cp $file $dest/$(basename $file)
	count=$((count + 1))
done
echo $count files
