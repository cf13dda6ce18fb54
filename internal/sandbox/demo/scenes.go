package demo

import (
	"fmt"
	"math/big"
	"time"
)

// scene is a moving picture that ffmpeg generates: gradients for the sky, and silhouettes from sums of sines, drawn
// once and moved past each other.
type scene struct {
	file, name, about string
	width, height     int // as displayed
	shore             int // row below which the picture is mirrored
	rate              int
	length            time.Duration
	graph             string // filters that end in [scene], width by shore pixels
}

// The demonstration's own clips. The second one is upright, like a phone's.
var scenes = []scene{
	{"dusk", "Clip A", "dusk at the lake", 1280, 720, 548, 30, 9 * time.Second, duskGraph},
	{"aurora", "Clip B", "northern lights", 720, 1280, 1072, 25, 6500 * time.Millisecond, auroraGraph},
}

const duskGraph = `
gradients=s=16x548:r=30:d=9:n=4:speed=0.00001:x0=8:y0=0:x1=8:y1=547:c0=0x2c4a92:c1=0x7d7fc0:c2=0xe9b7b0:c3=0xffd9a0[day];
gradients=s=16x548:r=30:d=9:n=4:speed=0.00001:x0=8:y0=0:x1=8:y1=547:c0=0x1b1a4e:c1=0x5a2f7c:c2=0xd9557a:c3=0xffa866[eve];
[day][eve]xfade=fade:duration=8.9:offset=0,format=yuv444p,scale=1280:548:flags=bicubic,setsar=1,format=yuv420p[sky];
color=white:s=640x640:r=30:d=0.03,format=rgba,geq=r=255:g='252-30*min(1,hypot(X-320,Y-320)/200)':b='236-110*min(1,hypot(X-320,Y-320)/260)':
 a='255*min(1,clip(36-hypot(X-320,Y-320),0,1)+0.75*pow(max(0,1-hypot(X-320,Y-320)/320),2.4))'[sun];
color=white:s=1500x260:r=30:d=0.03,format=rgba,geq=r=255:g=222:b=222:
 a='170*pow(max(0,sin(X/310+sin(Y/23)*.8)*sin(Y/13+sin(X/140)*1.7)*sin(Y/83)),1.6)',gblur=7:1[cloud];
color=black:s=1500x300:r=30:d=0.03,format=rgba,geq=r='150+Y*.42':g='92+Y*.34':b='150+Y*.02':
 a='255*clip(Y-6-88*abs(sin(X/151+1.3*sin(X/97)))*(1-.35*sin(X/211))
 -40*abs(sin(X/47+sin(X/61)))-15*abs(sin(X/17+sin(X/23)))-5*abs(sin(X/5.3)),0,1)'[far];
color=black:s=1700x240:r=30:d=0.03,format=rgba,geq=r='84+Y*.32':g='52+Y*.22':b='112+Y*.05':
 a='255*clip(Y-10-66*abs(sin(X/119+2+sin(X/83)))*(1-.35*sin(X/171))
 -34*abs(sin(X/37+sin(X/47)))-12*abs(sin(X/13.1+sin(X/19)))-4*abs(sin(X/4.7)),0,1)'[mid];
color=black:s=2300x130:r=30:d=0.03,format=rgba,geq=r='24+Y*.1':g='20+Y*.05':b='52+Y*.1':
 a='255*clip(Y-34-14*sin(X/190)-9*sin(X/61)
 -min(abs(mod(X+5*sin(X/43),15)-7.5)*(4.4+2.4*sin(X/29)),abs(mod(X+4*sin(X/31),11)-5.5)*(5+2*sin(X/17)))-2*mod(Y,3),0,1)'[near];
[sky][cloud]overlay=x='-60+t*6':y=70[s1];
[s1][sun]overlay=x=470:y='-110+t*33'[s2];
[s2][far]overlay=x='-40-t*4':y=330[s3];
[s3][mid]overlay=x='-60-t*10':y=400[s4];
[s4][near]overlay=x='-80-t*22':y=446[scene]`

const auroraGraph = `
color=black:s=90x134:r=25:d=6.5,format=gbrp,geq=
 r='16+Y*.06+80*exp(-pow((Y-26-14*sin(X/19+T*.4))/18,2))*pow(.5+.5*sin(X/5+2*sin(X/13+T*.5)),2)':
 g='20+Y*.30+165*exp(-pow(max(0,Y-70-18*sin(X/19+T*.4+sin(X/7+T)*.4))/16,2))
 *exp(-max(0,70+18*sin(X/19+T*.4+sin(X/7+T)*.4)-Y)/30)*(.45+.55*(sin(X/2.3+3*sin(X/11+T*.6)+T*.7)*.5+.5))':
 b='48+Y*.42+125*exp(-pow(max(0,Y-66-18*sin(X/19+T*.4))/18,2))*exp(-max(0,66+18*sin(X/19+T*.4)-Y)/44)*(.6+.4*sin(X/3.1+T))',
 scale=720:1072:flags=bicubic,setsar=1,format=yuv420p[sky];
color=black:s=720x600:r=25:d=0.04,format=rgba,geq=r=235:g=245:b=255:a='255*gt(random(1),.9988)*random(2)*(1-Y/600)',gblur=.6[stars];
color=black:s=1100x360:r=25:d=0.04,format=rgba,geq=r='8+Y*.06':g='34+Y*.22':b='62+Y*.14':
 a='255*clip(Y-10-110*abs(sin(X/173+1+sin(X/119)))-44*abs(sin(X/51+sin(X/67)))-15*abs(sin(X/17+sin(X/23)))-5*abs(sin(X/5.3)),0,1)'[far];
color=black:s=1100x260:r=25:d=0.04,format=rgba,geq=r='4+Y*.03':g='20+Y*.12':b='38+Y*.12':
 a='255*clip(Y-10-80*abs(sin(X/143+2+sin(X/99)))-34*abs(sin(X/41+sin(X/57)))-12*abs(sin(X/13+sin(X/19)))-4*abs(sin(X/4.7)),0,1)'[mid];
color=black:s=1300x200:r=25:d=0.04,format=rgba,geq=r=4:g='12+Y*.03':b='20+Y*.05':
 a='255*clip(Y-60-24*sin(X/130)
 -min(abs(mod(X+6*sin(X/41),25)-12.5)*(6+2.6*sin(X/33)),abs(mod(X+5*sin(X/37),17)-8.5)*(7+2.6*sin(X/19)))-3*mod(Y,4),0,1)'[near];
color=black:s=160x160:r=25:d=0.04,format=rgba,geq=r=255:g='205-70*abs(Y-66)/40':b='110-60*abs(Y-66)/40':
 a='255*min(1,lt(abs(X-80),16-abs(Y-70)*.12)*lt(abs(Y-80),20)+.5*pow(max(0,1-hypot(X-80,Y-80)/80),2))',split=6[l0][l1][l2][a3][a4][a5];
[a3]scale=84:-1[l3];[a4]scale=66:-1[l4];[a5]scale=104:-1[l5];
[sky][stars]overlay[s0];
[s0][far]overlay=x='-150-t*5':y=730[s1];
[s1][mid]overlay=x='-30-t*9':y=840[s2];
[s2][l3]overlay=x='150+14*sin(t*.9)':y='720-t*26'[s3];
[s3][l4]overlay=x='420+10*sin(t*.8+1)':y='610-t*20'[s4];
[s4][l5]overlay=x='540+16*sin(t+2)':y='850-t*34'[s5];
[s5][near]overlay=x='-200-t*14':y=890[s6];
[s6][l0]overlay=x='70+18*sin(t*.8)':y='880-t*44'[s7];
[s7][l1]overlay=x='310+20*sin(t*.7+2)':y='620-t*48'[s8];
[s8][l2]overlay=x='520+22*sin(t*.9+4)':y='400-t*40'[scene]`

// lamp is a disc that is bright only in the first three frames of every whole second, when the sound ticks.
type lamp struct{ x, y, radius int } // pixels of the displayed picture

func (s scene) lamp() lamp { return lamp{x: s.width - 74, y: 74, radius: 28} }

// picture returns the filters of the whole picture, ending in [picture]: the scene, its image in rippled water, the
// lamp, a name and the time code.
func (s scene) picture() string {
	depth := s.height - s.shore
	water := fmt.Sprintf(`;
[scene]split[land][up];
color=gray:s=%dx150:r=%d:d=0.03,noise=alls=22:all_seed=7,format=gray,scale=%d:1050:flags=bicubic,setsar=1,format=gbrp,loop=-1:1,
 trim=duration=%g,crop=%d:%d:0:'mod(t*22,700)',split[rx][ry];
[up]crop=%d:%d:0:%d,vflip,scale=%d:%d,setsar=1,format=gbrp,lutrgb=r=val*.70:g=val*.72:b=val*.82[mirror];
[mirror][rx][ry]displace=edge=smear,format=yuv420p[water];
[land][water]vstack,noise=c0s=3:c0f=t,vignette=PI/8[bare];`,
		s.width/40, s.rate, s.width, s.length.Seconds(), s.width, depth, s.width, 2*depth, s.shore-2*depth, s.width, depth)
	light := fmt.Sprintf(`
color=black:s=90x90:r=%d:d=0.03,format=rgba,geq=r='255*gt(hypot(X-45,Y-45),29)':
 g='246*gt(hypot(X-45,Y-45),29)':b='228*gt(hypot(X-45,Y-45),29)':
 a='225*max(clip(28-hypot(X-45,Y-45),0,1),clip(2.5-abs(hypot(X-45,Y-45)-33),0,1))'[lamp];
color=white:s=180x180:r=%d:d=0.03,format=rgba,geq=r=255:g=250:b=235:
 a='255*min(1,clip(28-hypot(X-90,Y-90),0,1)+.6*pow(max(0,1-hypot(X-90,Y-90)/90),2))'[lit];
[bare][lamp]overlay=x=W-119:y=29[dark];
[dark][lit]overlay=x=W-164:y=-16:enable='lt(mod(n,%d),3)'`, s.rate, s.rate, s.rate)
	code := fmt.Sprintf(`drawtext=font=Mono:timecode='00\:00\:00\:00':r=%d:`+
		`fontsize=26:fontcolor=0xfff6e4:shadowx=1:shadowy=1:x=40:y=h-56`, s.rate)
	return s.graph + water + light +
		"," + letters(s.name, 20, "0xffc46b", 40, "h-84") + "," + letters(s.about, 15, "0xfff6e4@0.8", 112, "h-81") + "," + code + "[picture]"
}

func (s scene) clip(path string) clip {
	l := s.lamp()
	return clip{name: s.name, path: path, width: s.width, height: s.height, rate: big.NewRat(int64(s.rate), 1), length: s.length, lamp: &l}
}
