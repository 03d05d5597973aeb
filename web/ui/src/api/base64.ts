// Bytes as the API takes them in JSON.

const chunk = 0x8000;

/** base64 writes bytes as text. */
export function base64(bytes: Uint8Array): string {
	let text = "";
	for (let i = 0; i < bytes.length; i += chunk) text += String.fromCharCode(...bytes.subarray(i, i + chunk));
	return btoa(text);
}

/** bytesOf reads a file that a person has chosen. */
export const bytesOf = async (f: Blob): Promise<Uint8Array> => new Uint8Array(await f.arrayBuffer());
