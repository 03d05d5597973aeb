/** fileButton makes the button of a file field look like the others. */
export const fileButton =
	"max-w-full file:mr-2 file:min-h-7 file:rounded-md file:border file:border-line file:bg-raised file:px-2.5 file:text-text disabled:opacity-75";
