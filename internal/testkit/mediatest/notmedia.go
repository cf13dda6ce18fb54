package mediatest

import "strings"

// NotMedia are files, by name, that an attacker or a broken client may upload as a video.
var NotMedia = map[string]string{
	"empty":       "",
	"text":        "Hello, this is not a film.\n",
	"hls":         "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsibling.mp4\n#EXT-X-ENDLIST\n",
	"hls_file":    "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
	"ffconcat":    "ffconcat version 1.0\nfile 'sibling.mp4'\n",
	"concat_bare": "file 'sibling.mp4'\n",
	"dash":        `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period></Period></MPD>`,
	"sdp":         "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
	"ffmetadata":  ";FFMETADATA1\ntitle=x\n",
	"png":         "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00",
	"heic":        "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic",
	"avif":        "\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf",
	"svg":         `<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>`,
	"html":        "<!doctype html><html></html>",
	"zip":         "PK\x03\x04\x14\x00\x00\x00\x08\x00",
	"avi":         "RIFF\x00\x10\x00\x00AVI LIST",
	"id3_text":    "ID3\x04\x00\x00\x00\x00\x00\x0a0123456789#EXTM3U\nsibling.mp4\n",
	"lone_sync":   "\xff\xfb\x90\x00 and then something else entirely, not another frame of the same stream",
	"free_text":   "All free music of this year, and more of it",
	"moov_text":   "#EXTmoov of a playlist",
	"ftyp_text":   "Big ftypisom is not a size",
	"open_mdat":   "\x00\x00\x00\x00mdat and nothing more, no index",
	"zeros":       strings.Repeat("\x00", 4096),
}
